"""What outlives an object that captures requests: a record of where its captures lie, by which they are removed. A
ConfigMap without content, owned by the store's claim, as no object may be left to own it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core import labels
from enginewright.core.conditions import parse_timestamp
from enginewright.core.manifests.common import JSON, sealed, short_hash
from enginewright.core.manifests.record import claim_owner
from enginewright.core.observed import CaptureMark
from enginewright.core.request import claim_of


def capture_record(namespace: str, claim_uid: str, store_uri: str, model: str) -> JSON:
    """Of the captures of ``model`` in a store on a volume."""
    return sealed({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"captures-{short_hash([store_uri, model], 16)}",
            "namespace": namespace,
            "labels": {labels.NAME: labels.PRODUCT, labels.COMPONENT: labels.COMPONENT_CAPTURES,
                       labels.PART_OF: labels.PRODUCT, labels.MANAGED_BY: labels.PRODUCT, labels.CAPTURES: "true"},
            "annotations": {labels.STORE_URI: store_uri, labels.CAPTURES_OF: model},
            "ownerReferences": [claim_owner(claim_of(store_uri) or "", claim_uid)],
        },
    })


def capture_mark(manifest: Mapping[str, Any]) -> CaptureMark | None:
    """What the collector needs of a record; None for one that does not say what it is of."""
    meta = manifest.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    model, store_uri = annotations.get(labels.CAPTURES_OF), str(annotations.get(labels.STORE_URI) or "")
    owners = [owner["uid"] for owner in meta.get("ownerReferences") or () if owner["kind"] == "PersistentVolumeClaim"]
    created = parse_timestamp(meta.get("creationTimestamp"))
    if not (model and owners and created and claim_of(store_uri)):
        return None
    return CaptureMark(name=meta["name"], version=meta["resourceVersion"], model=model, store_uri=store_uri,
                       claim_uid=owners[0], unreferenced=parse_timestamp(annotations.get(labels.UNREFERENCED)),
                       swept=parse_timestamp(annotations.get(labels.CAPTURES_SWEPT)) or created)
