"""Is a configuration as good as the unquantised model? Pure functions over recorded choices and log-probabilities.

A prompt's **record** is what the reference chose, token by token, with the most likely tokens at each. A **holding** is
what another configuration chose *after the reference's tokens*, at the same places. Two figures compare them at each
place: **agreement** (the same token: 1 or 0) and **divergence** (Jensen-Shannon, in bits: 0 for equal distributions, 1
for distributions without a token in common). Tokens of one text are not independent, so the unit is the prompt: the
mean of its places.

The reference held against itself, at another number of parallel requests, gives the **floor**. What counts is what a
candidate loses beyond it, by an upper 95 % bound that assumes nothing of how losses are spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from enginewright_builder.accuracy.bounds import mean_lower_bound
from enginewright_builder.errors import UserError
from enginewright_builder.generate.answer import Step
from enginewright_builder.generate.prompts import check_prompts
from enginewright_builder.tensors import Array

_FIELD = "spec.accuracy.maxLoss"


@dataclass(frozen=True, kw_only=True)
class Record:
    """Of one prompt: its tokens, and the reference's choices."""

    prompt: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Means over the places of one prompt."""

    agreement: float
    divergence: float
    places: int


@dataclass(frozen=True, kw_only=True)
class Loss:
    """``value`` is the candidate's figure, ``floor`` the reference's own, both as a loss of 1; ``beyond`` the mean of
    their difference by prompt, ``high`` its one-sided 95 % upper bound."""

    value: float
    floor: float
    beyond: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """``disagreement`` is 1 less the agreement. ``reason`` is empty where the candidate passes."""

    prompts: int
    places: int
    disagreement: Loss
    divergence: Loss
    reason: str = ""

    @property
    def passed(self) -> bool:
        return not self.reason


def divergence(reference: Mapping[int, float], candidate: Mapping[int, float]) -> float:
    """Bits, 0 to 1, between two distributions of which only the log-probabilities of the most likely tokens are known.
    A token that one does not name counts as 0 in it, and all that neither names as one token more."""
    names = sorted({*reference, *candidate})
    left, right = _shares(reference, names), _shares(candidate, names)
    middle = (left + right) / 2
    return float(min(1.0, max(0.0, (_relative(left, middle) + _relative(right, middle)) / 2)))


def _shares(top: Mapping[int, float], names: Sequence[int]) -> Array:
    named = np.array([math.exp(top[name]) if name in top else 0.0 for name in names])
    rest = max(0.0, 1.0 - float(named.sum()))
    shares = np.append(named, rest)
    return np.asarray(shares / max(float(shares.sum()), 1e-300))


def _relative(share: Array, middle: Array) -> float:
    seen = share > 0
    return float(np.sum(share[seen] * np.log2(share[seen] / middle[seen])))


def score(record: Record, held: Sequence[Step]) -> Scored:
    """``held`` may end early: a candidate that was asked no more. At least one place; raises ``ValueError``."""
    if not held:
        raise ValueError("a prompt of which no place was held")
    pairs = list(zip(record.steps, held, strict=False))
    return Scored(agreement=sum(one.token == other.token for one, other in pairs) / len(pairs),
                  divergence=sum(divergence(one.top, other.top) for one, other in pairs) / len(pairs),
                  places=len(pairs))


def check_floor(floor: Sequence[Scored], tolerance: float) -> None:
    """Raises :class:`UserError` as :func:`check_prompts` does, and ``NoiseFloorTooHigh`` where the reference disagrees
    with itself by more than a candidate may lose."""
    check_prompts(len(floor), tolerance)
    for what, found in (("disagrees with itself at", 1 - _mean(one.agreement for one in floor)),
                        ("diverges from itself by", _mean(one.divergence for one in floor))):
        if found > tolerance:
            raise UserError("NoiseFloorTooHigh", f"the unquantised model {what} {found:.3g}, from one number of "
                            f"parallel requests to another: a loss of {tolerance:g} is hidden in that",
                            field=_FIELD, value=tolerance,
                            remedy=f"raise it above {math.ceil(found * 1000) / 1000:g}, or build on another device")


def judge(floor: Sequence[Scored], candidate: Sequence[Scored], tolerance: float) -> Judgement:
    """Both of the same prompts, in one order; raises ``ValueError`` otherwise."""
    disagreement = _loss([1 - one.agreement for one in floor], [1 - one.agreement for one in candidate])
    diverged = _loss([one.divergence for one in floor], [one.divergence for one in candidate])
    return Judgement(prompts=len(candidate), places=sum(one.places for one in candidate), disagreement=disagreement,
                     divergence=diverged, reason=_reason(disagreement, diverged, tolerance))


def _loss(floor: Sequence[float], candidate: Sequence[float]) -> Loss:
    if not floor or len(floor) != len(candidate):
        raise ValueError("floor and candidate are of different prompts")
    beyond = np.asarray(candidate, np.float64) - np.asarray(floor, np.float64)
    # Differences lie between -1 and 1, the bound is of scores between 0 and 1 where 1 is best.
    high = 1 - 2 * mean_lower_bound((1 - beyond) / 2)
    return Loss(value=_mean(candidate), floor=_mean(floor), beyond=float(beyond.mean()), high=high)


def _reason(disagreement: Loss, diverged: Loss, tolerance: float) -> str:
    if disagreement.high > tolerance:
        return (f"{disagreement.value:.2%} of its next tokens differ from the unquantised model's, which differs from "
                f"itself in {disagreement.floor:.2%}: with 95 % confidence up to {disagreement.high:.2%} are lost, and "
                f"{tolerance:.2%} may be")
    if diverged.high > tolerance:
        return (f"its probabilities of next tokens diverge by {diverged.value:.4f} bits from the unquantised model's, "
                f"which diverges from itself by {diverged.floor:.4f}: with 95 % confidence up to {diverged.high:.4f} "
                f"are lost, and {tolerance:g} may be")
    return ""


def check_words(prompts: Sequence[tuple[int, ...]], candidate: Sequence[tuple[int, ...]],
                texts: Sequence[str], candidate_texts: Sequence[str]) -> str:
    """Why a candidate does not read or write as the reference does; empty where it does. Prompts are their tokens by
    each one's own tokeniser and chat template; texts are the reference's answers as each one writes the tokens. What
    there is of prompts beyond the answers are conversations that were made up."""
    for number, (ours, theirs) in enumerate(zip(prompts, candidate, strict=True)):
        if ours != theirs:
            place = next((index for index, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]),
                         min(len(ours), len(theirs)))
            what = f"prompt {number}" if number < len(texts) else "a conversation"
            return (f"it reads {what} as other tokens from place {place} on ({len(theirs)} in all, the "
                    f"reference {len(ours)}): its tokeniser or chat template differs")
    for number, (text, other) in enumerate(zip(texts, candidate_texts, strict=True)):
        if text != other:
            return f"it writes the tokens of answer {number} as another text: its tokeniser differs"
    return ""


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
