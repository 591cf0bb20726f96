"""What a promoted revision was made of, in a ConfigMap beside it: going back to it needs no build.

Owned by the object, named as the revision's Deployment, and never changed. It holds the spec and not the Deployment, so
that pods which are made again get what holds for the whole installation today (the verify container's image, the drain
time), as those of any new Deployment do; and all that the revision's name is made of, so that they bear its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from enginewright.core import labels
from enginewright.core.manifests.common import JSON, Owner, metadata, sealed
from enginewright.core.manifests.deployment import deployment_name
from enginewright.core.manifests.record import OUTCOME_FILE, outcome_text, read_outcome
from enginewright.core.observed import KeptRevision
from enginewright.core.placement import Placement
from enginewright.core.published import published
from enginewright_builder.contract import ContractError, canonical

SPEC_FILE, PLACEMENT_FILE, IMAGE_FILE = "spec.json", "placement.json", "image"
_PLACEMENT = TypeAdapter(Placement)


def revision_configmap(owner: Owner, kept: KeptRevision) -> JSON:
    extra = {labels.REVISION: kept.revision, labels.FINGERPRINT: labels.fingerprint_label(kept.outcome.fingerprint)}
    return sealed({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(owner, deployment_name(owner.name, kept.revision), labels.COMPONENT_REVISION, extra=extra,
                             annotations={labels.FINGERPRINT_FULL: kept.outcome.fingerprint}),
        "immutable": True,
        "data": {SPEC_FILE: canonical(kept.spec), IMAGE_FILE: kept.image, OUTCOME_FILE: outcome_text(kept.outcome),
                 PLACEMENT_FILE: _PLACEMENT.dump_json(kept.placement).decode()},
    })


def read_revision(manifest: Mapping[str, Any]) -> KeptRevision | None:
    """The revision in a ConfigMap, or None when it is not one that this version reads."""
    data = manifest.get("data") or {}
    revision = ((manifest.get("metadata") or {}).get("labels") or {}).get(labels.REVISION)
    try:
        spec = TypeAdapter(dict[str, Any]).validate_json(data.get(SPEC_FILE) or "")
        placement = _PLACEMENT.validate_json(data.get(PLACEMENT_FILE) or "")
        outcome = read_outcome(data)
    except (ContractError, ValidationError):
        return None
    if not (revision and outcome.ok and published(outcome) and outcome.fingerprint):
        return None
    return KeptRevision(revision=revision, spec=spec, image=str(data.get(IMAGE_FILE) or ""), placement=placement,
                        outcome=outcome)
