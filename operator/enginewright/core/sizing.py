"""What the container of a tritonserver asks for, and what it should, from what the build measured of the server
(docs/adr/0046-memory-from-measured-peaks.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from enginewright.core.config import OperatorConfig, Resources
from enginewright.core.quantity import parse_quantity
from enginewright.core.spec import Spec
from enginewright.core.spec.response_cache_rules import MEBIBYTE
from enginewright_builder.contract import MemoryFigures

MEMORY: Final = "memory"
CPU: Final = "cpu"
# A replica lives for weeks where the build looked for seconds, and its start-up test is a process more.
REQUEST_SHARE, REQUEST_MIB = 1.1, 64
# What the load of the shipped point does not show: more requests that wait, each of which holds its tensors.
LIMIT_SHARE, LIMIT_MIB = 1.5, 128
# Figures are rounded up to these, so that measuring again seldom changes them.
STEP_MIB, STEP_MILLICORES = 32, 50


def proposed(figures: MemoryFigures, spec: Spec) -> Resources:
    """Memory with its margins, and the processor time of the shipped load, where it is known."""
    requests = {MEMORY: f"{request_mebibytes(figures) + cache_mebibytes(spec)}Mi"}
    if figures.cores:
        requests[CPU] = f"{STEP_MILLICORES * max(1, math.ceil(1000 * figures.cores / STEP_MILLICORES))}m"
    return Resources(requests=requests, limits={MEMORY: f"{limit_mebibytes(figures) + cache_mebibytes(spec)}Mi"})


def request_mebibytes(figures: MemoryFigures) -> int:
    return _stepped(figures.peak_bytes * REQUEST_SHARE, REQUEST_MIB)


def limit_mebibytes(figures: MemoryFigures) -> int:
    return _stepped(figures.peak_bytes * LIMIT_SHARE, LIMIT_MIB)


def _stepped(number: float, spare: int) -> int:
    return STEP_MIB * math.ceil((number / MEBIBYTE + spare) / STEP_MIB)


def cache_mebibytes(spec: Spec) -> int:
    """That the server takes for answers when it starts."""
    cache = spec.serving.response_cache
    return cache.size_mebibytes if cache else 0


def server_defaults(spec: Spec, config: OperatorConfig, figures: MemoryFigures | None) -> Resources:
    """The operator's own, for what the user does not state: never less memory than was measured with its margin, as far
    as the operator's limit allows, and room for the cache. Without a request of memory in the operator's configuration
    none is made."""
    own, cache = config.server_resources, cache_mebibytes(spec)
    requests, limits = dict(own.requests), dict(own.limits)
    if figures is not None and MEMORY in requests:
        measured = f"{request_mebibytes(figures)}Mi"
        within = min((measured, *filter(None, [limits.get(MEMORY)])), key=parse_quantity)
        requests[MEMORY] = max(requests[MEMORY], within, key=parse_quantity)
    if cache:
        requests, limits = _with(requests, cache), _with(limits, cache)
    return Resources(requests=requests, limits=limits)


def _with(quantities: Mapping[str, str], mebibytes: int) -> dict[str, str]:
    memory = quantities.get(MEMORY)
    if memory is None:
        return dict(quantities)
    return {**quantities, MEMORY: f"{math.ceil(parse_quantity(memory) / MEBIBYTE) + mebibytes}Mi"}


def memory_limit(spec: Spec, config: OperatorConfig) -> tuple[str, str] | None:
    """The field that limits the server's memory, and its value; None where nothing does. Of the operator's own limit
    nothing is left where the user asks for more."""
    stated, request = spec.serving.resources.limits.get(MEMORY), spec.serving.resources.requests.get(MEMORY)
    if stated is not None:
        return "spec.serving.resources.limits.memory", str(stated)
    own = server_defaults(spec, config, None).limits.get(MEMORY)
    if own is None or (request is not None and parse_quantity(request) > parse_quantity(own)):
        return None
    return "config.serverResources.limits.memory of the operator's chart", own


def held_bytes(figures: MemoryFigures, spec: Spec) -> Decimal:
    """What the kernel cannot take back from the server under the measured load, its cache filled."""
    return Decimal(figures.held_bytes + cache_mebibytes(spec) * MEBIBYTE)
