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
# A field that is nearly a name of each sample makes as many groups as samples.
_SMALL_ONES_SHOWN = 50


@dataclass(frozen=True, kw_only=True)
class Groups:
    """``of_sample`` has the group of each sample, in the order of the evaluation's batches."""

    by: str
    of_sample: tuple[str, ...]

    @cached_property
    def rows(self) -> dict[str, Array]:
        """Places of each group's samples; groups by name."""
        return dict(sorted(places_of(self.of_sample).items()))


def places_of(names: Sequence[str]) -> dict[str, Array]:
    """Where each name stands, names in the order of their first place."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(name, []).append(place)
    return {name: np.array(places) for name, places in found.items()}


def reported(figures: Sequence[GroupFigure]) -> tuple[GroupFigure, ...]:
    """For a report: all that were judged by anything, and a few of those that were too small."""
    small = [one.group for one in figures if one.accuracy_low is None and one.task is None]
    left_out = {*small[_SMALL_ONES_SHOWN:]}
    return tuple(one for one in figures if one.group not in left_out)


def check_groups(accuracy: AccuracyRequest, of_sample: Sequence[str], queries: Sequence[str] = ()) -> str:
    """Which groups are too small for agreement, or for the labels, in words for a note; empty where none is.
    ``queries`` are those of the samples, where they are what labels count. Raises :class:`UserError`
    ``GroupsTooSmall`` where no group can be judged by anything."""
    samples, needed = Counter(of_sample), samples_needed(accuracy.tolerance)
    units = Counter(group for group, _ in set(zip(of_sample, queries, strict=True))) if queries else samples
    on_labels = samples_needed(accuracy.task.tolerance) if accuracy.task else 0
    names = sorted(samples)
    if all(samples[name] < needed and (not accuracy.task or units[name] < on_labels) for name in names):
        largest = max(names, key=lambda name: samples[name])
        raise UserError("GroupsTooSmall", f"the largest of {len(names)} groups by {accuracy.group_by}, {largest!r}, "
                        f"has {samples[largest]} samples, and {needed} can prove what is asked",
                        field="spec.accuracy.groupBy", value=accuracy.group_by,
                        remedy="name a field with fewer values, give more samples, or raise spec.accuracy.maxLoss")
    small = [name for name in names if samples[name] < needed or units[name] < on_labels]
    if not small:
        return ""
    kind = "queries" if queries else "samples"
    more = f" for agreement and {on_labels} {kind} for the labels" if accuracy.task else ""
    return (f"{len(small)} of {len(names)} groups by {accuracy.group_by} are too small to be judged in full, which "
            f"takes {needed} samples{more}: {listed([f'{name} ({samples[name]})' for name in small], len(small))}")


def summary(by: str, figures: Sequence[GroupFigure]) -> GroupsSummary | None:
    """Of all engines that serve together. None where no groups are asked for."""
    if not by:
        return None
    small = sorted({one.group for one in figures if one.too_small})
    known = [one for one in figures if one.accuracy_low is not None or one.task is not None]
    worst = max(known, key=_lost, default=None)
    return GroupsSummary(by=by, judged=len({one.group for one in figures} - {*small}), too_small=tuple(small[:_NAMED]),
                         too_small_count=len(small), worst=worst.group if worst else "")


def _lost(one: GroupFigure) -> tuple[float, float]:
    return one.task.loss if one.task else 0.0, 1 - (one.accuracy if one.accuracy is not None else 1.0)


def listed(names: Sequence[str], count: int) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {count - _NAMED} more" if count > _NAMED else shown
