"""The key that build Jobs sign engines with, and nothing else in the cluster reads: a Secret of the namespace, and the
part of a build Job that mounts it."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.manifests.common import JSON
from enginewright.core.request import SIGNING_PATH, reads_captures
from enginewright.core.spec import Spec
from enginewright_builder.contract import CAPTURE_SECRET, SIGNING_SECRET

VOLUME = "signing-keys"
READ_BY_OWNER_AND_GROUP = 0o440


def signing_secret(namespace: str, name: str = SIGNING_SECRET) -> JSON:
    """Without its key, which no pure function can make. No object owns it: engines of all objects are signed with it,
    and outlive them."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": name,
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


def capture_secret(namespace: str) -> JSON:
    """Of the key that monitors sign captures with: another one, as a serving pod must not be able to sign engines."""
    return signing_secret(namespace, CAPTURE_SECRET)


def capture_key_volume() -> JSON:
    """Optional: a monitor without the key captures nothing, and its pod serves."""
    return {"name": labels.VOLUME_CAPTURE_KEYS, "secret": {
        "secretName": CAPTURE_SECRET, "defaultMode": READ_BY_OWNER_AND_GROUP, "optional": True}}


def capture_key_mount() -> JSON:
    return {"name": labels.VOLUME_CAPTURE_KEYS, "mountPath": labels.CAPTURE_KEYS_PATH, "readOnly": True}


def capture_keys(spec: Spec) -> tuple[tuple[JSON, ...], tuple[JSON, ...]]:
    """Volumes and mounts of a Job that reads captures; none of one that does not."""
    return ((capture_key_volume(),), (capture_key_mount(),)) if reads_captures(spec) else ((), ())
