"""What the quality monitor says of live answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from enginewright_builder.contract.documents import _WHERE_ASKED_FOR, CONTRACT_VERSION, dumps, load, to_plain


@dataclass(frozen=True, kw_only=True)
class QualityReport:
    """What a replica's quality monitor says of live traffic. The newest ``samples`` requests are in its window, their
    scores by the accuracy gate's ``metric`` (0 to 1, 1 for equal answers) add up to ``total``; the engine was proven to
    lose at most ``tolerance``. ``requests`` were sampled since it began, the newest of the window ``age_seconds`` ago.
    ``problem`` says why nothing can be measured now; empty where it can.

    Of the sampled requests ``mirrored`` were answered by the candidate of a rollout, too, by its replicas at the
    addresses ``targets``; the scores of its answers against this replica's add up to ``agreed``.

    Where requests are captured, the newest capture of the model has ``captured`` samples of requests between
    ``captured_since`` and ``captured_until``, seconds since the epoch, and ``capture_digest``; ``capture_problem`` says
    why none can be written now. What is not asked for its JSON leaves out: operators that do not know a field refuse
    it."""

    metric: str
    tolerance: float
    samples: int = 0
    total: float = 0.0
    requests: int = 0
    age_seconds: float = 0.0
    problem: str = ""
    mirrored: int = 0
    agreed: float = 0.0
    targets: tuple[str, ...] = ()
    captured: int = 0
    captured_since: float = 0.0
    captured_until: float = 0.0
    capture_digest: str = ""
    capture_problem: str = ""
    version: int = CONTRACT_VERSION

    def to_json(self) -> str:
        body = to_plain(self)
        return dumps({key: value for key, value in body.items() if value or key not in _WHERE_ASKED_FOR})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises :class:`ContractError`."""
        return load(cls, text)
