"""What speaks against a language model's candidate beside its latencies, in words."""

from __future__ import annotations

import math
from typing import Final

from enginewright.core.comparison.doubt import UNSETTLED, Ending
from enginewright.core.comparison.question import Limits
from enginewright.core.comparison.tokens import OTHER_LENGTH, TPOT, TTFT, Texts
from enginewright.core.reasons import Reason

_FIELDS: Final = {TTFT: "ttftMilliseconds", TPOT: "tpotMilliseconds"}
_MEANT: Final = "If that is meant, set spec.rollout.analysis.compareOutputs to never."


def left(texts: Texts) -> tuple[Reason, str] | None:
    if not _proven(texts.gone, texts):
        return None
    return Reason.FAILED_INFERENCES, (
        f"Clients left {_of(texts.gone.mine)} requests before they were answered, of the stable revision's "
        f"{_of(texts.gone.theirs)}. Look at its latencies, and at what clients do with its answers.")


def other_answers(texts: Texts, limits: Limits) -> tuple[Reason, str] | None:
    """How they end, and how long they are, where both revisions are meant to answer alike."""
    if not limits.alike:
        return None
    if _proven(texts.cut, texts):
        return Reason.OUTPUTS_DIFFER, (
            f"Of its answers {_of(texts.cut.mine)} end at their largest length and not by themselves, of the stable "
            f"revision's {_of(texts.cut.theirs)}. {_MEANT}")
    length = texts.length
    if length is None or (length.high >= -OTHER_LENGTH and length.low <= OTHER_LENGTH):
        return None
    mine, theirs = texts.lengths
    return Reason.OUTPUTS_DIFFER, (f"Its answers have {mine:.3g} tokens on average, the stable revision's "
                                   f"{theirs:.3g}. {_MEANT}")


def late(texts: Texts, limits: Limits) -> tuple[Reason, str] | None:
    """Beyond the objective, which the stable revision keeps."""
    for name, found in texts.late.items():
        if _proven(found, texts) and _breaks(found, limits):
            limit = limits.first_token if name == TTFT else limits.per_token
            return Reason.OBJECTIVE_MISSED, (
                f"It misses the objective of p{limits.percentile:g} {name} {limit:g} ms, which the stable one keeps: "
                f"{_of(found.mine)} requests took longer, of the stable revision's {_of(found.theirs)}. Raise "
                f"spec.objective.tokens.{_FIELDS[name]}, or use faster hardware.")
    return None


def _proven(found: Ending, texts: Texts) -> bool:
    return found.evidence >= -math.log(texts.chance)


def _breaks(found: Ending, limits: Limits) -> bool:
    """Whether the candidate misses the objective so far, and the stable revision keeps it."""
    mine, theirs = found.shares
    return mine > 1 - limits.percentile / 100 >= theirs


def settled(texts: Texts, limits: Limits) -> bool:
    """Whether nothing keeps a candidate from being promoted early."""
    known = not limits.alike or texts.length is not None
    return known and as_long(texts, limits) and doubt(texts, limits) <= UNSETTLED


def as_long(texts: Texts, limits: Limits) -> bool:
    """Whether the likeliest length is no other, as far as it is known."""
    return not limits.alike or texts.length is None or abs(texts.length.mean) <= OTHER_LENGTH


def doubt(texts: Texts, limits: Limits) -> float:
    """The greatest evidence against it, a logarithm."""
    endings = [texts.gone, *([texts.cut] if limits.alike else []),
               *(one for one in texts.late.values() if _breaks(one, limits))]
    return max(one.evidence for one in endings)


def _of(part: tuple[float, float]) -> str:
    return f"{part[0]:.0f} of {part[1]:.0f}"

