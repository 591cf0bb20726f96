"""The in-cluster index of the engine store: one ConfigMap for each engine, so that a cache hit needs no Job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core.manifests.common import JSON
from enginewright.core.observed import ClaimView, EngineRecord
from enginewright_builder.contract import Outcome


def record_name(fingerprint: str, store_uri: str) -> str:
    """``engine-<first 32 of the fingerprint>-<8 of a hash of the store's URI>``: two stores in a namespace may hold
    the same engine."""
    raise NotImplementedError


def engine_record(namespace: str, claim: ClaimView, store_uri: str, outcome: Outcome) -> JSON:
    """Owned by the store's claim, not by the object that had it built: the engine stays for others."""
    raise NotImplementedError


def read_record(manifest: Mapping[str, Any]) -> EngineRecord | None:
    """The record in a ConfigMap, or None when it is not one that this version reads."""
    raise NotImplementedError
