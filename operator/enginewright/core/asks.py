"""What a pod asks of its node, as the scheduler counts it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from enginewright.core.quantity import parse_quantity

Object = Mapping[str, Any]
Amounts = dict[str, Decimal]
_CPU: Final = "cpu"
_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")
_UNITS: Final = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def requests_of(pod: Object) -> Amounts:
    """By resource, in cores, bytes or devices. Containers and sidecars hold theirs at once, an init container before
    they come, beside the sidecars that stand in front of it. What is no quantity does not count."""
    spec = pod.get("spec") or {}
    sidecars: Amounts = {}
    before: Amounts = {}
    for container in spec.get("initContainers") or []:
        own = _sum(sidecars, _of(container))
        before = _most(before, own)
        if container.get("restartPolicy") == "Always":
            sidecars = own
    running = sidecars
    for container in spec.get("containers") or []:
        running = _sum(running, _of(container))
    return _sum(_most(before, running), dict(_amounts(spec.get("overhead") or {})))


def in_quantities(amounts: Mapping[str, Decimal]) -> dict[str, str]:
    """As people write them: ``1500m`` cores, ``4Gi``."""
    return {name: _quantity(name, amount) for name, amount in sorted(amounts.items()) if amount}


def _of(container: Object) -> Amounts:
    """Kubernetes takes a limit as the request where the container states none."""
    resources = container.get("resources") or {}
    return dict(_amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})}))


def _amounts(quantities: Mapping[str, Any]) -> Iterator[tuple[str, Decimal]]:
    for name, text in quantities.items():
        try:
            yield name, parse_quantity(text)
        except ValueError:
            continue


def _sum(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, Decimal(0)) + right.get(name, Decimal(0)) for name in {**left, **right}}


def _most(left: Amounts, right: Amounts) -> Amounts:
    return {name: max(left.get(name, Decimal(0)), right.get(name, Decimal(0))) for name in {**left, **right}}


def _quantity(name: str, amount: Decimal) -> str:
    if name == _CPU and amount % 1:
        return f"{math.ceil(amount * 1000)}m"
    if name.startswith(_BYTES):
        for unit, size in _UNITS:
            if amount % size == 0:
                return f"{int(amount / size)}{unit}"
    return str(math.ceil(amount))
