"""What a replica's quality monitor reports."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from enginewright.clients.gets import PageClient
from enginewright.clients.signals import NoSignalError
from enginewright.clients.urls import pod_url
from enginewright.core.labels import QUALITY_PORT
from enginewright_builder.contract import ContractError, QualityReport

# Bytes. A report has some 200.
LARGEST_REPORT: Final = 8 << 10
# Characters of its problem, which a condition quotes.
LONGEST_PROBLEM: Final = 300
# Seconds since the epoch: in the year 2286.
LATEST: Final = 1e10
_DIGEST: Final = re.compile(r"(sha256:[0-9a-f]{64})?")


class QualityClient(PageClient):
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
        if not (0 <= found.captured_since <= found.captured_until <= LATEST and found.captured >= 0
                and _DIGEST.fullmatch(found.capture_digest)):
            raise NoSignalError("what it says of its captures makes no sense", call=f"GET {url}")
        return replace(found, problem=_line(found.problem), capture_problem=_line(found.capture_problem))


def _line(words: str) -> str:
    return words if len(words) <= LONGEST_PROBLEM and words.isprintable() else "its log says what is wrong"
