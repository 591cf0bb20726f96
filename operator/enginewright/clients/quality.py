"""What a replica's quality monitor reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from enginewright.clients.pods import PodClient
from enginewright.clients.signals import NoSignalError
from enginewright.clients.urls import pod_url
from enginewright.core.labels import QUALITY_PORT
from enginewright_builder.contract import ContractError, QualityReport

# Bytes. A report has some 200.
LARGEST_REPORT: Final = 8 << 10
# Characters of its problem, which a condition quotes.
LONGEST_PROBLEM: Final = 300


class QualityClient(PodClient):
    def __init__(self, *, deadline: float = 1.0) -> None:
        super().__init__(deadline=deadline, largest=LARGEST_REPORT)

    async def report(self, address: str, port: int = QUALITY_PORT) -> QualityReport:
        """Raises :class:`TransientError` without an answer, :class:`NoSignalError` for one that makes no sense."""
        url = pod_url(address, port, "quality")
        body = await self._page(url)
        try:
            found = QualityReport.from_json(body.decode())
        except (ContractError, UnicodeDecodeError) as error:
            raise NoSignalError("the report does not have the form that this operator reads", call="GET "
                                                                                                   f"{url}") from error
        if not 0 <= found.total <= found.samples:
            raise NoSignalError(f"{found.samples} scores cannot add up to {found.total}", call=f"GET {url}")
        if not 0 <= found.agreed <= found.mirrored:
            raise NoSignalError(f"{found.mirrored} scores cannot add up to {found.agreed}", call=f"GET {url}")
        if len(found.problem) > LONGEST_PROBLEM or not found.problem.isprintable():
            return replace(found, problem="its log says what is wrong")
        return found
