"""A fleet: one model over several classes of devices, each served by an object of its own that is made from the
fleet's.

What a member is asked for is the fleet's spec with the class in the place of ``placement``, and with the class's own
limits of replicas. Node selectors and tolerations beside the classes hold for all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from enginewright.core.problems import Problem
from enginewright.core.spec.model import Spec
from enginewright.core.spec.parse import show
from enginewright.core.spec.placement import PlacementClassSpec, PlacementSpec
from enginewright.core.spec.rollout import AutoscalingSpec, RolloutSpec
from enginewright.core.spec.scaling_limits import ScheduleSpec

Check = Callable[[Spec], tuple[Problem, ...]]


def member_name(fleet: str, name: str) -> str:
    """Of the object that serves class ``name``."""
    return f"{fleet}-{name}"


def is_fleet(raw: Mapping[str, Any]) -> bool:
    """Whether a raw spec, which may be any rubbish, asks for classes."""
    placement = raw.get("placement")
    return isinstance(placement, Mapping) and bool(placement.get("classes"))


def classes_of(spec: Spec) -> tuple[PlacementClassSpec, ...]:
    """None where it is no fleet."""
    return spec.placement.classes or ()


def member_spec(spec: Spec, entry: PlacementClassSpec) -> Spec:
    """What class ``entry`` of ``spec`` asks for. No member promotes by itself, and routes are the fleet's."""
    update: dict[str, Any] = {
        "placement": _placement(spec.placement, entry),
        "rollout": _rollout(spec.rollout),
    }
    if spec.autoscaling is None:
        update["replicas"] = 1 if entry.min_replicas is None else entry.min_replicas
    else:
        update["autoscaling"] = _limits(spec.autoscaling, entry)
    return spec.model_copy(update=update)


def as_raw(spec: Spec) -> dict[str, Any]:
    """As written in an object: what was given, without defaults."""
    return spec.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _placement(common: PlacementSpec, entry: PlacementClassSpec) -> PlacementSpec:
    given: dict[str, Any] = {"accelerator": entry.accelerator}
    given |= {name: block for name, block in (("gpu", entry.gpu), ("mig", entry.mig)) if block is not None}
    if spot := entry.spot or common.spot:
        given["spot"] = spot
    if selector := {**common.node_selector, **entry.node_selector}:
        given["node_selector"] = selector
    if tolerations := (*common.tolerations, *entry.tolerations):
        given["tolerations"] = tolerations
    return PlacementSpec(**given)


def _rollout(rollout: RolloutSpec) -> RolloutSpec:
    given = {name: getattr(rollout, name) for name in rollout.model_fields_set - {"gateway", "auto_promote"}}
    return RolloutSpec(**given, auto_promote=False)


def _limits(scaling: AutoscalingSpec, entry: PlacementClassSpec) -> AutoscalingSpec:
    own = {"min_replicas": entry.min_replicas, "max_replicas": entry.max_replicas}
    update: dict[str, Any] = {name: limit for name, limit in own.items() if limit is not None}
    if scaling.schedules:
        update["schedules"] = tuple(_within(one, entry) for one in scaling.schedules)
    return scaling.model_copy(update=update)


def _within(schedule: ScheduleSpec, entry: PlacementClassSpec) -> ScheduleSpec:
    """A schedule is written for all classes: in one that has limits of its own, it moves between those."""
    given = {"min_replicas": schedule.min_replicas, "max_replicas": schedule.max_replicas}
    low, high = entry.min_replicas or 0, entry.max_replicas or math.inf
    return schedule.model_copy(update={name: int(max(low, min(high, limit))) for name, limit in given.items()
                                       if limit is not None})


def fleet_problems(spec: Spec, check: Check) -> tuple[Problem, ...]:
    """What is wrong with a fleet: its own rules first, then what ``check`` finds in each class, told once where all
    classes break it alike and else with the class named."""
    own = tuple(_own(spec))
    if own:
        return own
    found = [check(member_spec(spec, entry)) for entry in classes_of(spec)]
    common = [problem for problem in found[0] if not _placed(problem) and all(problem in other for other in found)]
    named = [_named(spec, index, problem) for index, problems in enumerate(found) for problem in problems
             if problem not in common]
    return tuple(dict.fromkeys((*common, *named)))


def _own(spec: Spec) -> Iterator[Problem]:
    placement = spec.placement
    names = [entry.name for entry in classes_of(spec)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield _problem("spec.placement.classes", twice, "repeats a name", "give each class its own name")
    for name, block in (("gpu", placement.gpu), ("mig", placement.mig)):
        if block is not None:
            yield _problem(f"spec.placement.{name}", block.model_dump(by_alias=True, exclude_none=True),
                           "excludes spec.placement.classes", "move it into the classes")
    if placement.accelerator == "cpu":
        yield _problem("spec.placement.accelerator", "cpu", "excludes spec.placement.classes",
                       "move it into the classes")
    if spec.quality is not None and spec.quality.rollback:
        yield _problem("spec.quality.rollback", True, "excludes spec.placement.classes, which are promoted together",
                       "set it to false, and go back by changing the spec when QualityHeld of a class is False")
    yield from _scaled(spec)
    yield from _rolled_out(spec)


def _scaled(spec: Spec) -> Iterator[Problem]:
    if spec.replicas is not None:
        yield _problem("spec.replicas", spec.replicas, "excludes spec.placement.classes: a fleet has replicas for each "
                                                       "class, and /scale does not scale it",
                       "remove it and set minReplicas of each class, or spec.autoscaling")
    if spec.autoscaling is not None and spec.autoscaling.min_replicas == 0:
        yield _problem("spec.autoscaling.minReplicas", 0, "excludes spec.placement.classes: requests that other "
                       "classes answer wake no class up", "set it to 1 or more")
    for index, entry in enumerate(classes_of(spec)):
        if entry.max_replicas is not None and spec.autoscaling is None:
            yield _problem(f"spec.placement.classes[{index}].maxReplicas", entry.max_replicas,
                           "has no meaning without spec.autoscaling",
                           "add spec.autoscaling, or remove it: minReplicas is the number of replicas then")


def _rolled_out(spec: Spec) -> Iterator[Problem]:
    rollout = spec.rollout
    if rollout.strategy == "BlueGreen":
        yield _problem("spec.rollout.strategy", rollout.strategy, "does not go with spec.placement.classes: their pods "
                                                                  "share one Service that cannot leave candidates out",
                       "write strategy Canary, or Recreate for one class after the other")
    if rollout.strategy == "Recreate" and not rollout.auto_promote:
        yield _problem("spec.rollout.autoPromote", False, "does not go with strategy Recreate and "
                       "spec.placement.classes: no candidate runs beside what serves and could wait for promotion",
                       "remove it, or write strategy Canary with maxSurge 0")


def _placed(problem: Problem) -> bool:
    return problem.field.startswith("spec.placement.")


def _named(spec: Spec, index: int, problem: Problem) -> Problem:
    """``problem`` of one class, at the field that the fleet's spec has for it."""
    entry, field = classes_of(spec)[index], problem.field
    if _placed(problem):
        return replace(problem, field=_place_of(spec, index, field))
    if field == "spec.autoscaling.minReplicas":
        name = "minReplicas" if entry.min_replicas is not None else "maxReplicas"
        field = f"spec.placement.classes[{index}].{name}"
    return replace(problem, field=field, message=f"{problem.message} (class {entry.name})",
                   remedy=f"{problem.remedy}; or remove the class")


def _place_of(spec: Spec, index: int, field: str) -> str:
    """Tolerations that hold for all classes come first in each member."""
    common = len(spec.placement.tolerations)
    if found := re.match(r"spec\.placement\.tolerations\[(\d+)\]", field):
        if int(found[1]) < common:
            return field
        field = f"spec.placement.tolerations[{int(found[1]) - common}]{field[found.end():]}"
    return field.replace("spec.placement.", f"spec.placement.classes[{index}].", 1)


def _problem(field: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=field, value=show(value), message=message, remedy=remedy)
