"""A plan for people, and as a fragment that NVIDIA's MIG manager understands."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from enginewright.core.planner.fleet import GPU, LayoutChange, Plan, Seat


def as_data(plan: Plan, gpus: Sequence[GPU], notes: Sequence[str]) -> dict[str, Any]:
    return {
        "placements": [dataclasses.asdict(seat) for seat in plan.seats],
        "doesNotFit": [dataclasses.asdict(one) for one in plan.unplaced],
        "proposal": {"changes": [dataclasses.asdict(change) for change in plan.changes],
                     "migParted": mig_parted(plan, gpus) if plan.changes else None},
        "notes": list(notes),
    }


def mig_parted(plan: Plan, gpus: Sequence[GPU]) -> dict[str, Any]:
    """The configuration file of NVIDIA/mig-parted (version v1), one configuration for each node that is to change. All
    of its GPUs stand in it: those that stay as they are are skipped when it is applied."""
    changed = {(change.node, change.gpu): change for change in plan.changes}
    configs: dict[str, list[dict[str, Any]]] = {}
    for node in sorted({change.node for change in plan.changes}):
        alike: dict[tuple[bool, tuple[tuple[str, int], ...]], list[int]] = {}
        for gpu in gpus:
            if gpu.node == node:
                alike.setdefault(_layout(gpu, changed.get((node, gpu.index))), []).append(gpu.index)
        configs[config_name(node)] = [
            {"devices": devices, "mig-enabled": enabled, **({"mig-devices": dict(layout)} if enabled else {})}
            for (enabled, layout), devices in alike.items()]
    return {"version": "v1", "mig-configs": configs}


def config_name(node: str) -> str:
    return f"enginewright-{node}"


def _layout(gpu: GPU, change: LayoutChange | None) -> tuple[bool, tuple[tuple[str, int], ...]]:
    instances = change.after if change else tuple((i.profile, i.start) for i in gpu.instances)
    counts = Counter(profile for profile, _ in instances)
    return (change.mig if change else gpu.mig), tuple(sorted(counts.items()))


def as_text(plan: Plan, notes: Sequence[str], fragment: str) -> str:
    """``fragment`` is :func:`mig_parted` as YAML."""
    parts = []
    if plan.seats:
        parts.append("Fits now:\n" + _table(("MODEL", "REPLICA", "NODE", "GPU", "RUNS ON"), map(_row, plan.seats)))
    else:
        parts.append("Nothing to place fits now." if plan.unplaced else "Nothing to place.")
    if plan.unplaced:
        rows = ((one.demand, str(one.replicas), one.why, one.message) for one in plan.unplaced)
        parts.append("Does not fit:\n" + _table(("MODEL", "REPLICAS", "WHY", "WHAT WOULD HELP"), rows))
    if plan.changes:
        nodes = sorted({change.node for change in plan.changes})
        seats = dict.fromkeys(seat for change in plan.changes for seat in change.seats)
        parts.append("Proposal (nothing was changed). With the layout below, these would also fit:\n"
                     + _table(("MODEL", "REPLICA", "NODE", "GPU", "RUNS ON"), map(_row, seats)))
        parts.append("Configuration for NVIDIA's MIG manager (mig-parted):\n" + fragment.rstrip())
        parts.append("Once it is in the MIG manager's ConfigMap:\n" + "\n".join(
            f"  kubectl label node {node} nvidia.com/mig.config={config_name(node)} --overwrite" for node in nodes))
    if notes:
        parts.append("Notes:\n" + "\n".join(f"  - {note}" for note in notes))
    return "\n\n".join(parts) + "\n"


def _row(seat: Seat) -> tuple[str, ...]:
    where = f"{seat.profile} at slice {seat.start}" if seat.profile else "whole"
    return seat.demand, str(seat.replica), seat.node, ",".join(map(str, seat.gpus)), where


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
                     for line in lines)


def grouped(objects: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Lists (``kind: List``, ``NodeList``…) opened, everything else as it is. An item of a typed list has its kind
    from the list's."""
    found: list[Mapping[str, Any]] = []
    for one in objects:
        items = one.get("items")
        if not isinstance(items, list):
            found.append(one)
            continue
        kind = str(one.get("kind") or "").removesuffix("List")
        found += [{**({"kind": kind} if kind else {}), **item} for item in items if isinstance(item, Mapping)]
    return found
