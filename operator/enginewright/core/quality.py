"""Do live answers still agree with the source model? Statistics over what the replicas' monitors report; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from enginewright_builder.contract import QualityReport

# How likely one interval misses on one side. The window is looked at again and again, and a replica may be rolled back
# for it: a twentieth, as the gate takes, would be wrong every few hours.
ALPHA: Final = 0.001
_HALVINGS: Final = 60


@dataclass(frozen=True)
class Agreement:
    """Mean score of ``samples`` live answers, which is between ``low`` and ``high``; each bound is wrong in one window
    of a thousand at most."""

    samples: int
    mean: float
    low: float
    high: float


def agreement(samples: int, total: float, alpha: float = ALPHA) -> Agreement:
    """Of scores between 0 and 1 that add up to ``total``, however they are spread.

    Chernoff's bound: of independent scores with mean μ, ``P(mean ≤ m) ≤ exp(-n · kl(m, μ))`` for m < μ, as a score in
    [0, 1] has at most the moments of a coin of the same mean (Hoeffding 1963, theorem 1). ``kl`` is the relative
    entropy of two coins. Where all agree, the bound is α^(1/n), the same as the accuracy gate's.
    """
    if samples < 1:
        return Agreement(0, 0.0, 0.0, 1.0)
    mean = min(1.0, max(0.0, total / samples))
    limit = -math.log(alpha) / samples
    return Agreement(samples, mean, _furthest(mean, 0.0, limit), _furthest(mean, 1.0, limit))


def _furthest(mean: float, end: float, limit: float) -> float:
    """The value between ``mean`` and ``end`` whose relative entropy from ``mean`` is ``limit``; ``end`` if none is."""
    near, far = mean, end
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        near, far = (middle, far) if _entropy(mean, middle) <= limit else (near, middle)
    return far


def _entropy(mean: float, other: float) -> float:
    left = mean * math.log(mean / other) if mean and other else (math.inf if mean else 0.0)
    right = (1 - mean) * math.log((1 - mean) / (1 - other)) if mean < 1 and other < 1 else (math.inf if mean < 1 else 0)
    return left + right


def samples_needed(tolerance: float, alpha: float = ALPHA) -> int:
    """Fewest answers that can show a loss of at most ``tolerance``, if all agree: α^(1/n) ≥ 1 - tolerance."""
    return math.ceil(math.log(alpha) / math.log1p(-tolerance))


@dataclass(frozen=True, kw_only=True)
class Finding:
    """All replicas together. ``worst`` is the one that by itself has drifted, with its own figures; empty where none
    has. ``required`` is the least agreement that the engine was proven to keep; ``problems`` are those of replicas."""

    agreement: Agreement
    required: float
    tolerance: float
    metric: str
    replicas: int
    worst: str = ""
    worst_agreement: Agreement | None = None
    problems: tuple[str, ...] = ()

    @property
    def drifted(self) -> bool:
        return bool(self.worst) or self.agreement.high < self.required

    @property
    def held(self) -> bool:
        return self.agreement.low >= self.required

    @property
    def few(self) -> bool:
        return self.agreement.samples < samples_needed(self.tolerance)


def find(reports: Mapping[str, QualityReport]) -> Finding | None:
    """``reports`` by replica; None where no replica measures anything. One replica alone may be what is wrong: its
    device, or what it loaded. It has drifted where its own interval says so at an ``ALPHA`` shared by all."""
    problems = tuple(sorted({report.problem for report in reports.values() if report.problem}))
    good = {name: report for name, report in reports.items() if 0 < report.tolerance < 1}
    if not good:
        return None
    tolerance = max(report.tolerance for report in good.values())
    required = 1 - tolerance
    alone = {name: agreement(report.samples, report.total, ALPHA / len(good)) for name, report in good.items()}
    worst = min(alone, key=lambda name: (alone[name].high, name))
    out = alone[worst].high < required
    return Finding(
        agreement=agreement(sum(one.samples for one in good.values()), math.fsum(one.total for one in good.values())),
        required=required, tolerance=tolerance, metric=next(iter(good.values())).metric, replicas=len(good),
        worst=worst if out else "", worst_agreement=alone[worst] if out else None, problems=problems,
    )  # fmt: skip
