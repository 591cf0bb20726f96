"""Persistent volumes: a directory of this machine on the local cluster, the default storage class elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cluster.settings import NODE_NAME
from cluster.steps import ClusterError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SIZE = re.compile(r"[1-9][0-9]*(Ki|Mi|Gi|Ti)")


def check(namespace: str, claim: str, size: str = "1Gi") -> None:
    """Refuse names and sizes that the API would refuse, before they become part of a path.

    Raises:
        ClusterError: names the argument and what to write.
    """
    for what, value in (("namespace", namespace), ("claim", claim)):
        if not _NAME.fullmatch(value):
            raise ClusterError(f"{what} {value!r}: use lower-case letters, digits and '-', at most 63")
    if not _SIZE.fullmatch(size):
        raise ClusterError(f"size {size!r}: write a number with Ki, Mi, Gi or Ti, as 4Gi")


def volume_name(namespace: str, claim: str) -> str:
    return f"{namespace}-{claim}"


def local_manifests(namespace: str, claim: str, size: str, directory: Path) -> str:
    """Claim and volume, bound to each other, as a List in JSON.

    A `local` volume, not a `hostPath`: kubelet then gives it to the pod's `fsGroup`, as real storage does.
    """
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name(namespace, claim)},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": namespace, "name": claim},
            "local": {"path": str(directory)},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_NAME]}
                            ]
                        }
                    ]
                }
            },
        },
    }
    bound = _claim(namespace, claim, size, ["ReadWriteMany"])
    bound["spec"] |= {"storageClassName": "", "volumeName": volume_name(namespace, claim)}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [volume, bound]})


def claim_manifest(namespace: str, claim: str, size: str) -> str:
    """A claim on the default storage class. ReadWriteOnce: most classes offer no more, and kind's is among them."""
    return json.dumps(_claim(namespace, claim, size, ["ReadWriteOnce"]))


def _claim(namespace: str, claim: str, size: str, modes: list[str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim, "namespace": namespace},
        "spec": {"accessModes": modes, "resources": {"requests": {"storage": size}}},
    }
