"""The in-cluster index of the engine store: one ConfigMap for each engine, so that a cache hit needs no Job."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from enginewright.core import labels
from enginewright.core.conditions import parse_timestamp
from enginewright.core.manifests.common import JSON, sealed, short_hash
from enginewright.core.observed import ClaimView, EngineRecord, RecordMark
from enginewright.core.published import published
from enginewright.core.request import claim_of
from enginewright.core.spec.base import in_bucket
from enginewright_builder.contract import ContractError, Outcome, canonical

OUTCOME_FILE = "outcome.json"
# Of an outcome that is read: a build's own has a few KB, and anyone who may write ConfigMaps may write any number of
# candidates into one.
OUTCOME_BYTES = 64 << 10
_ACCESS = TypeAdapter(dict[str, str])


@functools.lru_cache(maxsize=1024)
def record_name(fingerprint: str, store_uri: str) -> str:
    """``engine-<first 32 of the fingerprint>-<8 of a hash of the store's URI>``: two stores in a namespace may hold
    the same engine."""
    return f"engine-{labels.fingerprint_label(fingerprint)}-{short_hash(store_uri, 8)}"


def engine_record(namespace: str, claim: ClaimView | None, store_uri: str, outcome: Outcome,
                  access: Mapping[str, str] | None = None) -> JSON:
    """Owned by the store's claim, not by the object that had it built: the engine stays for others. One in a bucket has
    no owner, and says as whom the bucket is used."""
    fingerprint = outcome.fingerprint
    return sealed({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": record_name(fingerprint, store_uri),
            "namespace": namespace,
            "labels": {labels.NAME: labels.PRODUCT, labels.COMPONENT: labels.COMPONENT_ENGINE,
                       labels.PART_OF: labels.PRODUCT, labels.MANAGED_BY: labels.PRODUCT,
                       labels.ENGINE: "true", labels.FINGERPRINT: labels.fingerprint_label(fingerprint)},
            "annotations": {labels.FINGERPRINT_FULL: fingerprint, labels.STORE_URI: store_uri,
                            **({labels.STORE_ACCESS: canonical(dict(access))} if access else {})},
            **({"ownerReferences": [claim_owner(claim.name, claim.uid)]} if claim else {}),
        },
        "data": {OUTCOME_FILE: outcome_text(outcome)},
    })


def outcome_text(outcome: Outcome) -> str:
    """Its JSON, shortened where :func:`read_outcome` would refuse it."""
    text = outcome.to_json()
    return text if len(text.encode()) <= OUTCOME_BYTES else outcome.to_termination_message(OUTCOME_BYTES)


def read_outcome(data: Mapping[str, Any]) -> Outcome:
    """Raises :class:`ContractError`, at once for one of more than ``OUTCOME_BYTES``."""
    text = str(data.get(OUTCOME_FILE) or "")
    if len(text) > OUTCOME_BYTES:
        raise ContractError(f"{OUTCOME_FILE}: {len(text)} characters, where at most {OUTCOME_BYTES} are read")
    return Outcome.from_json(text)


def claim_owner(name: str, uid: str) -> JSON:
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": name, "uid": uid}


def read_record(manifest: Mapping[str, Any]) -> EngineRecord | None:
    """The record in a ConfigMap, or None when it is not one that this version reads."""
    annotations = (manifest.get("metadata") or {}).get("annotations") or {}
    try:
        outcome = read_outcome(manifest.get("data") or {})
    except ContractError:
        return None
    store_uri = str(annotations.get(labels.STORE_URI) or "")
    ours = outcome.fingerprint == annotations.get(labels.FINGERPRINT_FULL) and _known(store_uri)
    if not (ours and outcome.ok and published(outcome)):
        return None
    return EngineRecord(
        fingerprint=outcome.fingerprint, store_claim=claim_of(store_uri) or "", outcome=outcome, store_uri=store_uri,
        unreferenced=parse_timestamp(annotations.get(labels.UNREFERENCED)),
        version=str((manifest.get("metadata") or {}).get("resourceVersion") or ""))


def record_mark(manifest: Mapping[str, Any]) -> RecordMark | None:
    """What the collector of unused engines needs of a record; None for one that does not say what it is of."""
    meta = manifest.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    fingerprint, store_uri = annotations.get(labels.FINGERPRINT_FULL), str(annotations.get(labels.STORE_URI) or "")
    owners = [owner["uid"] for owner in meta.get("ownerReferences") or () if owner["kind"] == "PersistentVolumeClaim"]
    if in_bucket(store_uri):
        owners = [""]
    if not (fingerprint and owners and _known(store_uri)):
        return None
    return RecordMark(name=meta["name"], version=meta["resourceVersion"], fingerprint=fingerprint, store_uri=store_uri,
                      claim_uid=owners[0], unreferenced=parse_timestamp(annotations.get(labels.UNREFERENCED)),
                      access=_access(annotations.get(labels.STORE_ACCESS)))


def _known(store_uri: str) -> bool:
    return store_uri.startswith("pvc://") or in_bucket(store_uri)


def _access(text: str | None) -> tuple[tuple[str, str], ...]:
    try:
        return tuple(sorted(_ACCESS.validate_json(text).items())) if text else ()
    except ValidationError:
        return ()
