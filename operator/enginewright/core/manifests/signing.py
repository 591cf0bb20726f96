"""The key that build Jobs sign engines with, and nothing else in the cluster reads: a Secret of the namespace, and the
part of a build Job that mounts it."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.manifests.common import JSON
from enginewright.core.request import SIGNING_PATH
from enginewright_builder.contract import SIGNING_SECRET

VOLUME = "signing-keys"
READ_BY_OWNER_AND_GROUP = 0o440


def signing_secret(namespace: str) -> JSON:
    """Without its key, which no pure function can make. No object owns it: engines of all objects are signed with it,
    and outlive them."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": SIGNING_SECRET,
            "namespace": namespace,
            "labels": {labels.NAME: labels.PRODUCT, labels.COMPONENT: labels.COMPONENT_SIGNING,
                       labels.PART_OF: labels.PRODUCT, labels.MANAGED_BY: labels.PRODUCT},
        },
    }


def signing_volume() -> JSON:
    """Optional: of a key that is missing the builder says what is, a pod that waits for it says nothing."""
    return {"name": VOLUME, "secret": {"secretName": SIGNING_SECRET, "defaultMode": READ_BY_OWNER_AND_GROUP,
                                       "optional": True}}


def signing_mount() -> JSON:
    return {"name": VOLUME, "mountPath": SIGNING_PATH, "readOnly": True}
