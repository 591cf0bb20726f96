"""Groups of samples that the gate holds for, each by itself: a good mean may hide who pays for it.

A candidate is refused if it fails in one group. Each group is judged at 95 %: that all of them pass is an
intersection–union test, which needs no correction for how many there are (Berger 1982, "Multiparameter hypothesis
testing and acceptance sampling"). A group that could not prove the tolerance even if nothing were lost is not judged,
and named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from enginewright_builder.accuracy.rules import samples_needed
from enginewright_builder.contract import AccuracyRequest, GroupFigure, GroupsSummary
from enginewright_builder.errors import UserError
from enginewright_builder.tensors import Array

# Of names in a summary, which is for a person to read.
_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class Groups:
    """``of_sample`` has the group of each sample, in the order of the evaluation's batches."""

    by: str
    of_sample: tuple[str, ...]

    @cached_property
    def rows(self) -> dict[str, Array]:
        """Places of each group's samples; groups by name."""
        names = np.array(self.of_sample, dtype=object)
        return {name: np.flatnonzero(names == name) for name in sorted(set(self.of_sample))}


def check_groups(accuracy: AccuracyRequest, of_sample: Sequence[str]) -> str:
    """Which groups are too small, in words for a note; empty where none is. Raises :class:`UserError`
    ``GroupsTooSmall`` where no group can be judged."""
    needed = samples_needed(accuracy.tolerance)
    counts = dict(sorted(Counter(of_sample).items()))
    small = [name for name, count in counts.items() if count < needed]
    if len(small) == len(counts):
        largest = max(counts, key=lambda name: counts[name])
        raise UserError("GroupsTooSmall", f"the largest of {len(counts)} groups by {accuracy.group_by}, {largest!r}, "
                        f"has {counts[largest]} samples, and {needed} can prove what is asked",
                        field="spec.accuracy.groupBy", value=accuracy.group_by,
                        remedy="name a field with fewer values, give more samples, or raise spec.accuracy.maxLoss")
    if not small:
        return ""
    return (f"{len(small)} of {len(counts)} groups by {accuracy.group_by} have fewer than {needed} samples and are not "
            f"judged by themselves: {listed([f'{name} ({counts[name]})' for name in small], len(small))}")


def summary(by: str, figures: Sequence[GroupFigure]) -> GroupsSummary | None:
    """Of all engines that serve together. None where no groups are asked for."""
    if not by:
        return None
    small = sorted({one.group for one in figures if one.too_small})
    judged = [one for one in figures if one.accuracy_low is not None or one.task is not None]
    worst = max(judged, key=_lost, default=None)
    return GroupsSummary(by=by, judged=len({one.group for one in judged}), too_small=tuple(small[:_NAMED]),
                         too_small_count=len(small),
                         worst=worst.group if worst else "")


def _lost(one: GroupFigure) -> tuple[float, float]:
    return one.task.loss if one.task else 0.0, 1 - (one.accuracy if one.accuracy is not None else 1.0)


def listed(names: Sequence[str], count: int) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {count - _NAMED} more" if count > _NAMED else shown
