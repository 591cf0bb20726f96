"""Do live answers still agree with the source model? Statistics over what the replicas' monitors report; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from enginewright_builder.contract import QualityReport

# How likely one interval misses on one side. The window is looked at again and again, and a replica may be rolled back
# for it: a twentieth, as the gate takes, would be wrong every few hours.
ALPHA: Final = 0.001
# Requests before anything is said: two wrong ones would do for the bound, but they may be one client's, or a start's.
LEAST_SAMPLES: Final = 30
# A window without a new sample for so long says nothing of now.
STALE_SECONDS: Final = 600.0
_HALVINGS: Final = 60


@dataclass(frozen=True)
class Agreement:
    """Mean score of ``samples`` live requests, which is between ``low`` and ``high``; each bound is wrong in one window
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
    """Fewest requests that can show a loss of at most ``tolerance``, if all agree: α^(1/n) ≥ 1 - tolerance."""
    if tolerance >= 1:  # whatever is answered passes
        return 1
    return math.ceil(math.log(alpha) / math.log1p(-tolerance))


@dataclass(frozen=True, kw_only=True)
class Finding:
    """All replicas together, which alone decide. ``worst`` is the one of several that by itself has drifted, with its
    own figures; empty where none has. ``required`` is the least agreement that the engine was proven to keep."""

    agreement: Agreement
    required: float
    tolerance: float
    metric: str
    replicas: int
    worst: str = ""
    worst_agreement: Agreement | None = None

    @property
    def drifted(self) -> bool:
        return _below(self.agreement, self.required)

    @property
    def held(self) -> bool:
        return not self.few and self.agreement.low >= self.required

    @property
    def few(self) -> bool:
        return self.agreement.samples < self.needed

    @property
    def needed(self) -> int:
        return max(LEAST_SAMPLES, samples_needed(self.tolerance))


def _below(found: Agreement, required: float) -> bool:
    return found.samples >= LEAST_SAMPLES and found.high < required


def problems(reports: Iterable[QualityReport]) -> tuple[str, ...]:
    return tuple(sorted({report.problem for report in reports if report.problem}))


def silent_seconds(reports: Iterable[QualityReport]) -> float:
    """Since the newest sample of all, where every window is too old to say anything; 0 where one is not."""
    ages = [report.age_seconds for report in reports if report.samples]
    return min(ages) if ages and min(ages) > STALE_SECONDS else 0.0


def find(reports: Mapping[str, QualityReport]) -> Finding | None:
    """``reports`` by replica; None where no replica measures anything now. One replica alone may be what is wrong, its
    device or what it loaded: it is named where its own interval says so at an ``ALPHA`` shared by all."""
    good = {name: report for name, report in reports.items() if _measures(report)}
    if not good:
        return None
    tolerance = max(report.tolerance for report in good.values())
    required = 1 - tolerance
    alone = {name: agreement(report.samples, report.total, ALPHA / len(good)) for name, report in good.items()}
    out = [name for name, one in alone.items() if len(good) > 1 and _below(one, required)]
    worst = min(out, key=lambda name: (alone[name].high, name), default="")
    return Finding(
        agreement=agreement(sum(one.samples for one in good.values()), math.fsum(one.total for one in good.values())),
        required=required, tolerance=tolerance, metric=next(iter(good.values())).metric, replicas=len(good),
        worst=worst, worst_agreement=alone.get(worst),
    )


def _measures(report: QualityReport) -> bool:
    if not 0 < report.tolerance < 1 or report.age_seconds > STALE_SECONDS:
        return False
    return bool(report.samples) or not report.problem
