"""Candidates of a rollout that cost no build: copies of an engine that was built, sound or with a fault."""

from __future__ import annotations

from typing import Any

from rollouts.cluster import Corner
from support.bench import Bench


def plant(bench: Bench, name: str, spec: dict[str, Any], *, engine: str, fault: str) -> str:
    """Has the store answer ``spec`` with a copy of ``engine`` that has ``fault`` (see :mod:`rollouts.plant`), and
    returns its fingerprint. The object asks for ``spec`` then and is suspended: so the operator says which engine it
    would build, and does not."""
    corner = Corner(bench.kube, bench.images["builder"], bench.namespace)
    corner.open_store()
    bench.apply(name, **spec, suspend=True)
    generation = bench.model(name)["metadata"]["generation"]
    wanted = bench.wait(name, f"jsonpath={{.status.observedGeneration}}={generation}")["status"]["fingerprint"]
    corner.plant(engine, wanted, fault)
    return str(wanted)
