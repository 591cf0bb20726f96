"""Compute resources of a container, as Kubernetes writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from enginewright.core.spec.base import Remedy, SpecModel

QUANTITY_PATTERN = r"^([0-9]+|[0-9]*\.[0-9]+|[0-9]+\.)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,2})?$"
_REMEDY = Remedy("write quantities of cpu, memory or ephemeral-storage such as cpu: 500m, memory: 2Gi; accelerators "
                 "are chosen under spec.placement")
ResourceName = Literal["cpu", "memory", "ephemeral-storage"]
Quantity = Annotated[
    Annotated[int, Field(ge=0)] | Annotated[str, Field(max_length=32, pattern=QUANTITY_PATTERN)],
    _REMEDY,
]
Quantities = Annotated[Mapping[ResourceName, Quantity], Field(max_length=3), _REMEDY]


class ResourcesSpec(SpecModel):
    """Requests and limits of cpu, memory and ephemeral storage. Accelerators are chosen by ``placement``."""

    requests: Quantities = Field(default_factory=dict)
    """What the scheduler reserves, such as cpu: 500m or memory: 2Gi."""
    limits: Quantities = Field(default_factory=dict)
    """The most that the container may use."""
