"""From what the user asks of the hardware to what pods and the build request say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from enginewright.core.config import OperatorConfig
from enginewright.core.problems import Problem
from enginewright.core.spec import Spec
from enginewright_builder.contract import DeviceRequest


@dataclass(frozen=True, kw_only=True)
class DeviceClaim:
    """A slice claimed by Dynamic Resource Allocation. ``expression`` is the CEL selector on the device."""

    device_class: str
    expression: str
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class Placement:
    """``limits`` are the extended resources of one pod; ``description`` is for people (``H100 1g.10gb``, ``CPU``)."""

    limits: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: Mapping[str, Any] | None = None
    tolerations: tuple[Mapping[str, Any], ...] = ()
    runtime_class_name: str = ""
    claim: DeviceClaim | None = None
    device: DeviceRequest = field(default_factory=DeviceRequest)
    description: str = "CPU"


def place(spec: Spec, source_bytes: int, config: OperatorConfig) -> Placement | Problem:
    """Where pods of ``spec`` run. ``source_bytes`` (of the resolved source; 0 when not resolved yet) sizes
    ``mig.profile: auto``. A problem when no profile fits or the spec names what does not exist."""
    raise NotImplementedError
