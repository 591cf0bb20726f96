"""The Lease that says who builds an engine, so that several objects that ask for the same build it once."""

from __future__ import annotations

from datetime import datetime

from enginewright.core import labels
from enginewright.core.conditions import micro_time
from enginewright.core.manifests.common import JSON, Owner
from enginewright.core.manifests.record import record_name

# A lease that was not renewed for so long may be taken over. It is renewed in a third of that.
LEASE_SECONDS = 120


def build_lease(owner: Owner, fingerprint: str, store_uri: str, now: datetime) -> JSON:
    """Named as the engine's record: an engine is shared by those that mount the same store, which is in one namespace.
    Owned by the object that builds: with it and its Job the lease goes."""
    moment = micro_time(now)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": record_name(fingerprint, store_uri),
            "namespace": owner.namespace,
            "labels": {**labels.common(owner.name, labels.COMPONENT_BUILD), labels.BUILDS: "true",
                       labels.FINGERPRINT: labels.fingerprint_label(fingerprint)},
            "annotations": {labels.FINGERPRINT_FULL: fingerprint, labels.STORE_URI: store_uri},
            "ownerReferences": [owner.reference],
        },
        "spec": {"holderIdentity": holder_identity(owner), "leaseDurationSeconds": LEASE_SECONDS,
                 "acquireTime": moment, "renewTime": moment},
    }


def holder_identity(owner: Owner) -> str:
    """``namespace/name/uid``: an object that is made again under its name is another one."""
    return f"{owner.namespace}/{owner.name}/{owner.uid}"
