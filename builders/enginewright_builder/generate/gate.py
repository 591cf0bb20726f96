"""Is a configuration as good as the unquantised model? Pure functions over recorded choices and log-probabilities.

A prompt's **record** is what the reference chose, token by token, with the most likely tokens at each. A **holding** is
what another configuration chose *after the reference's tokens*, at the same places. Two figures compare them at each
place: **agreement** (the same token: 1 or 0) and **divergence** (Jensen-Shannon, in bits: 0 for equal distributions, 1
for distributions without a token in common). Tokens of one text are not independent, so the unit is the prompt: the
mean of its places.

The reference held against itself, at another number of parallel requests, gives the **floor**. What counts is what a
candidate loses beyond it, by an upper 95 % bound that assumes nothing of how losses are spread. So of all its tokens
the floor and the tolerance together may be others, and both numbers are said.

The **beginnings** of all answers prove that. Other **parts** (:class:`Compared`), such as what follows in the answers,
have fewer prompts than prove it, or more: :func:`judge` says what becomes of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from enginewright_builder.accuracy.bounds import mean_lower_bound
from enginewright_builder.accuracy.rules import samples_advised
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
class Where:
    """A part of what is compared: the tokens ``first`` to ``last`` of answers, counted from 1, with ``at_once``
    requests in flight at most. ``proves``: with prompts enough it has to prove as much as the beginnings do."""

    first: int
    last: int
    at_once: int
    proves: bool = True


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The scores of one part: of the reference held against itself, and of a candidate, by prompt."""

    where: Where
    floor: Sequence[Scored]
    candidate: Sequence[Scored]


@dataclass(frozen=True, kw_only=True)
class Part:
    """``proven``: both losses are within the tolerance by their upper bounds. What is not proven, of too few prompts,
    was not shown to lose more, either."""

    where: Where
    prompts: int
    places: int
    disagreement: Loss
    divergence: Loss
    proven: bool


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """``disagreement`` is 1 less the agreement; the figures are of the beginnings of all answers, ``parts`` of what was
    compared beside them. ``reason`` is empty where the candidate passes."""

    prompts: int
    places: int
    disagreement: Loss
    divergence: Loss
    reason: str = ""
    parts: tuple[Part, ...] = ()

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


def score(record: Record, held: Sequence[Step], begin: int = 0, end: int | None = None) -> Scored:
    """Over the places ``begin`` up to ``end``. ``held`` may end early: a candidate that was asked no more. At least one
    place; raises ``ValueError``."""
    pairs = list(zip(record.steps[begin:end], held[begin:end], strict=False))
    if not pairs:
        raise ValueError("a prompt of which no place was held")
    return Scored(agreement=sum(one.token == other.token for one, other in pairs) / len(pairs),
                  divergence=sum(divergence(one.top, other.top) for one, other in pairs) / len(pairs),
                  places=len(pairs))


def check_floor(floor: Sequence[Scored], tolerance: float) -> None:
    """Raises :class:`UserError` as :func:`check_prompts` does, and ``NoiseFloorTooHigh`` where the reference disagrees
    with itself by more than a candidate may lose."""
    check_prompts(len(floor), tolerance)
    _check_noise(_mean(one.agreement for one in floor), _mean(one.divergence for one in floor), tolerance, "")


def check_part_of_floor(part: Compared, tolerance: float) -> None:
    """The same of a part, of which so few prompts may be that their mean says little: by its lower bound."""
    agrees, apart = (np.array([getattr(one, name) for one in part.floor]) for name in ("agreement", "divergence"))
    _check_noise(1 - mean_lower_bound(1 - agrees), mean_lower_bound(apart), tolerance,
                 f" in {in_words(part.where)}")


def _check_noise(agreement: float, diverged: float, tolerance: float, where: str) -> None:
    for what, found in (("disagrees with itself at", 1 - agreement), ("diverges from itself by", diverged)):
        if found > tolerance:
            raise UserError("NoiseFloorTooHigh", f"the unquantised model {what} {found:.3g}{where}, from one number of "
                            f"parallel requests to another: a loss of {tolerance:g} is hidden in that",
                            field=_FIELD, value=tolerance,
                            remedy=f"raise it above {math.ceil(found * 1000) / 1000:g}, or build on another device")


def judge(floor: Sequence[Scored], candidate: Sequence[Scored], tolerance: float,
          parts: Sequence[Compared] = ()) -> Judgement:
    """Both of the same prompts, in one order; raises ``ValueError`` otherwise.

    ``floor`` and ``candidate`` are of the beginnings, whose losses are to be within ``tolerance`` by their upper bound.
    So are those of each of ``parts`` with as many prompts as are advised. A part of fewer refuses a candidate where its
    losses are shown to be larger: where their lower bound is above what the floor and the tolerance allow together.
    That all have to pass is an intersection-union test, which needs no correction for how many they are."""
    disagreement, diverged = _losses(floor, candidate)
    found = [_part(one, tolerance) for one in parts]
    reasons = [*_reasons(disagreement, diverged, tolerance), *(reason for _, reason in found)]
    return Judgement(prompts=len(candidate), places=sum(one.places for one in candidate), disagreement=disagreement,
                     divergence=diverged, reason=next(filter(None, reasons), ""),
                     parts=tuple(part for part, _ in found))


def _losses(floor: Sequence[Scored], candidate: Sequence[Scored]) -> tuple[Loss, Loss]:
    return (_loss([1 - one.agreement for one in floor], [1 - one.agreement for one in candidate]),
            _loss([one.divergence for one in floor], [one.divergence for one in candidate]))


def _part(found: Compared, tolerance: float) -> tuple[Part, str]:
    """And why it refuses the candidate; empty where it does not."""
    disagreement, diverged = _losses(found.floor, found.candidate)
    reasons = _reasons(disagreement, diverged, tolerance)
    must = found.where.proves and len(found.candidate) >= samples_advised(tolerance)
    shown = (_shown([1 - one.agreement for one in found.candidate], disagreement, tolerance),
             _shown([one.divergence for one in found.candidate], diverged, tolerance))
    refuses = next((reason for reason, more in zip(reasons, shown, strict=True) if reason and (must or more)), "")
    part = Part(where=found.where, prompts=len(found.candidate), places=sum(one.places for one in found.candidate),
                disagreement=disagreement, divergence=diverged, proven=not any(reasons))
    return part, f"in {in_words(found.where)}, {refuses}" if refuses else ""


def _shown(losses: Sequence[float], loss: Loss, tolerance: float) -> bool:
    """Whether more is lost than may be, by the lower bound of the loss."""
    return mean_lower_bound(np.asarray(losses, np.float64)) > tolerance + loss.floor


def in_words(where: Where) -> str:
    """As the object of a preposition."""
    if where.last == 1:
        return "the first token of answers"
    return f"tokens {where.first} to {where.last} of answers with {where.at_once} requests at once"


def _loss(floor: Sequence[float], candidate: Sequence[float]) -> Loss:
    if not floor or len(floor) != len(candidate):
        raise ValueError("floor and candidate are of different prompts")
    beyond = np.asarray(candidate, np.float64) - np.asarray(floor, np.float64)
    # Differences lie between -1 and 1, the bound is of scores between 0 and 1 where 1 is best.
    high = 1 - 2 * mean_lower_bound((1 - beyond) / 2)
    return Loss(value=_mean(candidate), floor=_mean(floor), beyond=float(beyond.mean()), high=high)


def _reasons(disagreement: Loss, diverged: Loss, tolerance: float) -> tuple[str, str]:
    """Of each figure why it is not proven to be within the tolerance; empty where it is."""
    tokens = (f"{disagreement.value:.2%} of its next tokens differ from the unquantised model's, which differs from "
              f"itself in {disagreement.floor:.2%}: with 95 % confidence up to {disagreement.high:.2%} are lost beyond "
              f"that. {tolerance:.2%} may be, so {tolerance + disagreement.floor:.2%} of all")
    bits = (f"its probabilities of next tokens diverge by {diverged.value:.4f} bits from the unquantised model's, "
            f"which diverges from itself by {diverged.floor:.4f}: with 95 % confidence up to {diverged.high:.4f} are "
            f"lost beyond that. {tolerance:g} may be, so {tolerance + diverged.floor:.4f} in all")
    return tokens if disagreement.high > tolerance else "", bits if diverged.high > tolerance else ""


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
