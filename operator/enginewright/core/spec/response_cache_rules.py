"""Rules of ``spec.serving.responseCache``."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright.core.problems import Problem
from enginewright.core.quantity import parse_quantity
from enginewright.core.spec.model import Spec
from enginewright.core.spec.parse import show

FIELD = "spec.serving.responseCache.sizeMebibytes"
MEBIBYTE = 1 << 20


def response_cache_problems(spec: Spec) -> Iterator[Problem]:
    """The server takes all of the cache's memory when it starts; with none left for the engine it would be killed."""
    cache = spec.serving.response_cache
    if cache is None:
        return
    memory = spec.serving.resources.limits.get("memory")
    if memory is not None and cache.size_mebibytes * MEBIBYTE >= parse_quantity(memory):
        yield Problem(field=FIELD, value=show(cache.size_mebibytes),
                      message=f"leaves nothing of spec.serving.resources.limits.memory {memory} for the engine",
                      remedy="lower it, or raise that by the size of the cache")
