"""From OptimisedModels to what they still need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from enginewright.core.config import OperatorConfig
from enginewright.core.internal import joined
from enginewright.core.observed import NodeView
from enginewright.core.placement import MIG_STATE_LABEL, PRODUCT_LABEL, Placement, built_for
from enginewright.core.placement import place as place_spec
from enginewright.core.planner.fleet import Demand, Option
from enginewright.core.planner.nodes import Fleet
from enginewright.core.planner.objects import Object
from enginewright.core.problems import Problem
from enginewright.core.spec import Spec, parse_spec, validate, validate_name
from enginewright.core.spec.fleet import as_raw, classes_of, member_name, member_spec
from enginewright.core.status import PlacementStatus, SourceStatus, read

BLOCKING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, kw_only=True)
class Needs:
    """``notes`` are the models that nothing is planned for, and why."""

    demands: tuple[Demand, ...]
    notes: tuple[str, ...]


def needs_of(objects: Sequence[Object], fleet: Fleet, config: OperatorConfig) -> Needs | list[Problem]:
    """Replicas that run already, by the pods of ``fleet``, are not asked for again."""
    demands: list[Demand] = []
    notes: list[str] = []
    problems: list[Problem] = []
    for one in _apart(objects):
        metadata = one.get("metadata") or {}
        name = str(metadata.get("name") or "")
        full = f"{metadata['namespace']}/{name}" if metadata.get("namespace") else name
        spec = _spec(one, name)
        if not isinstance(spec, Spec):
            problems += [_of(full, problem) for problem in spec]
            continue
        if any(demand.name == full for demand in demands):
            problems.append(Problem(field="metadata.name", value=full, message="is repeated",
                                    remedy="give each model once, or add its namespace"))
            continue
        needed = _demand(spec, full, joined(one.get("status")), fleet, config)
        if isinstance(needed, Problem):
            problems.append(_of(full, needed))
        elif isinstance(needed, str):
            notes.append(f"{full} is left out: {needed}")
        else:
            running = fleet.running.get((str(metadata.get("namespace") or "default"), name), 0)
            missing = needed.replicas - running
            if running:
                notes.append(f"{full}: {running} of {needed.replicas} replicas already run")
            if missing > 0:
                demands.append(Demand(name=full, replicas=missing, options=needed.options, nodes=needed.nodes))
    return problems or Needs(demands=tuple(demands), notes=tuple(notes))


def _apart(objects: Sequence[Object]) -> Iterator[Object]:
    """With the objects of its classes in place of a fleet; in a cluster they are there."""
    there = {_place(one) for one in objects}
    for one in objects:
        spec = parse_spec(one.get("spec") or {})
        if not isinstance(spec, Spec) or not classes_of(spec) or validate(spec):
            yield one
            continue
        namespace, name = _place(one)
        for entry in classes_of(spec):
            if (namespace, member_name(name, entry.name)) not in there:
                metadata = {**(one.get("metadata") or {}), "name": member_name(name, entry.name)}
                yield {"metadata": metadata, "spec": as_raw(member_spec(spec, entry))}


def _place(one: Object) -> tuple[str, str]:
    metadata = one.get("metadata") or {}
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _of(name: str, problem: Problem) -> Problem:
    return Problem(field=f"{name or '(no name)'}: {problem.field}", value=problem.value, message=problem.message,
                   remedy=problem.remedy)


def _spec(one: Object, name: str) -> Spec | Sequence[Problem]:
    bad = validate_name(name)
    spec = parse_spec(one.get("spec") or {})
    problems = [*([bad] if bad else []), *(validate(spec) if isinstance(spec, Spec) else spec)]
    return problems or spec


def _demand(
    spec: Spec, name: str, status: Mapping[str, Any], fleet: Fleet, config: OperatorConfig
) -> Demand | Problem | str:
    """A text where there is nothing to plan."""
    if spec.placement.accelerator == "cpu":
        return "it runs on CPUs"
    slices = spec.placement.mig
    if slices and slices.dra:
        return "DRA claims its slices: they are in ResourceSlices, not on nodes"
    source = read(SourceStatus, status.get("source"))
    chosen = read(PlacementStatus, status.get("placement"))
    known = chosen.mig_profile if chosen and slices and slices.profile == "auto" else None
    if slices and slices.profile == "auto" and not known and not (source and source.size_bytes):
        return Problem(field="spec.placement.mig.profile", value='"auto"', message="neither its manifest nor its "
                                                                                   "status has the model's size",
                       remedy="name a profile such as 1g.10gb, or plan with the object of the cluster once its source "
                              "is resolved")
    placed = place_spec(spec, (source.size_bytes or 0) if source else 0, config)
    if isinstance(placed, Problem):
        return placed
    product = built_for(spec)
    option = Option(profile=known or placed.device.mig_profile, products=(product,) if product else (),
                    gpus=spec.placement.gpu.count if spec.placement.gpu and not slices else 1)
    # One that may have none still needs a place when a request comes.
    replicas = max(1, spec.autoscaling.min_replicas) if spec.autoscaling else spec.replicas
    nodes = frozenset(node.name for node in fleet.nodes if suits(node, placed))
    return Demand(name=name, replicas=1 if replicas is None else replicas, options=(option,), nodes=nodes)


def suits(node: NodeView, placed: Placement) -> bool:
    """By the pod's node selector and tolerations. The product is the option's to say; that its layout was made well
    counts only where the MIG manager has said anything: a node without MIG gets that label with its first layout."""
    there = node.labels
    wanted = {key: value for key, value in placed.node_selector.items()
              if key != PRODUCT_LABEL and (key != MIG_STATE_LABEL or key in there)}
    return all(there.get(key) == value for key, value in wanted.items()) and all(
        taint.get("effect") not in BLOCKING or any(_tolerates(one, taint) for one in placed.tolerations)
        for taint in node.taints)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """As Kubernetes has it: an empty key with Exists matches all, an empty effect all effects."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")
