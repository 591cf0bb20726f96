"""Live requests that both revisions answered: do the candidate's answers agree with the stable revision's? And test
answers of a language model: does the candidate still choose as it was proven to?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

# Chance of a wrong word, however often one looks.
ALPHA: Final = 0.001
# Scored requests that are waited for, as long as the analysis takes.
LEAST_MIRRORED: Final = 10
# Odds of an answer that is wrong, as multiples of what is tolerated, at which the evidence is greatest.
MULTIPLES: Final = (1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
_HALVINGS: Final = 40


@dataclass(frozen=True, kw_only=True)
class Mirrored:
    """Scores of ``samples`` requests, each 0 to 1 by the accuracy gate's ``metric``, that add up to ``agreed``; their
    mean has to be at least ``required``. ``problem`` says why there are none. ``tested``: they are not of live
    requests, but of prompts that the candidate's own monitors ask, against the source model's answers."""

    required: float
    metric: str = ""
    samples: int = 0
    agreed: float = 0.0
    problem: str = ""
    tested: bool = False

    @property
    def mean(self) -> float:
        return min(1.0, self.agreed / self.samples) if self.samples else 0.0

    @property
    def low(self) -> float:
        """The mean is at least this, but for an error of :data:`ALPHA` over all looks."""
        return 1 - _highest(self.samples, self.samples - self.agreed)

    @property
    def high(self) -> float:
        """And at most this."""
        return _highest(self.samples, self.agreed)

    @property
    def disagrees(self) -> bool:
        return against(self.samples, self.agreed, self.required) >= -math.log(ALPHA)

    @property
    def enough(self) -> bool:
        return self.samples >= LEAST_MIRRORED

    @property
    def what(self) -> str:
        return "test answers" if self.tested else "mirrored live requests"

    @property
    def flaw(self) -> str:
        """A sentence, of what disagrees."""
        whose = ("prompts of its build are not the source model's" if self.tested
                 else "live requests are not the stable revision's")
        return f"Its answers to {whose}: {self.figures}."

    @property
    def figures(self) -> str:
        if not self.samples:
            none = "no test answer was scored" if self.tested else "no live request was mirrored"
            return f"{none}{f' ({self.problem})' if self.problem else ''}"
        return (f"{self.samples} {self.what} agree by {self.metric} {self.mean:.3f} ({self.low:.3f} to "
                f"{self.high:.3f}, {self.required:.3f} is needed)")


def required(stable: float, candidate: float) -> float:
    """The least mean score of one engine's answers against another's where both pass the gate with these tolerances.

    By cosine, or ranks, which is the cosine of centred ranks: for angles a and b to the source,
    ``1 - cos(a + b) = 2 sin²((a+b)/2) ≤ 2 (sin a/2 + sin b/2)² ≤ 2 (1 - cos a) + 2 (1 - cos b)``, which holds for means
    as well. By top1 both together are wrong no more often than each, and relative errors add up to less than twice as
    long as they are small: this is no stricter than either.
    """
    return max(0.0, 1 - 2 * (stable + candidate))


def against(samples: int, agreed: float, least: float) -> float:
    """Logarithm of an e-value against a mean of at least ``least``: as odds of a thousand it is wrong once in a
    thousand analyses, whenever one looks (Ville's inequality).

    For q < m a score x has ``E[(q/m)^x ((1-q)/(1-m))^(1-x)] ≤ 1`` where its mean is m or more, whatever was before: the
    factor is convex in x, so at most what a coin of the same mean has (Hoeffding 1963), and falls with the mean. The
    product over all scores depends on their number and sum alone, so that those of several replicas add up; several q
    are mixed in equal parts (Robbins 1970).
    """
    if samples < 1 or not 0 < least < 1:
        return 0.0
    # The share q of the right ones has odds that are as many times smaller.
    logs = [-samples * math.log(least + multiple * (1 - least)) + (samples - agreed) * math.log(multiple)
            for multiple in MULTIPLES]
    most = max(logs)
    return most + math.log(sum(math.exp(one - most) for one in logs) / len(logs))


def _highest(samples: int, agreed: float) -> float:
    """The greatest mean that nothing speaks against."""
    low, high = min(1.0, agreed / samples) if samples else 0.0, 1.0
    for _ in range(_HALVINGS if samples else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if against(samples, agreed, middle) >= -math.log(ALPHA) else (middle, high)
    return high
