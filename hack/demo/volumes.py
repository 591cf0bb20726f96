"""Puts files on a PersistentVolumeClaim the way any cluster allows: through a small pod that mounts it."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import tarfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from demo.shell import Kube

ROOT = "/volumes"
Trees = Mapping[str, Path]


def fill(kube: Kube, namespace: str, image: str, trees: Mapping[str, Trees]) -> None:
    """By claim, copies each local tree to ``/<name>`` on it."""
    with mounted(kube, namespace, tuple(trees), image) as pod:
        kube("exec", "-i", "-n", namespace, pod, "--", "tar", "-xf", "-", "-C", ROOT, stdin=_tar(trees))


def read(kube: Kube, namespace: str, claim: str, image: str, names: tuple[str, ...]) -> dict[str, bytes]:
    """The content of the first file of each name, at most one folder below the root of ``claim``."""
    found = {}
    with mounted(kube, namespace, (claim,), image) as pod:
        for name in names:
            command = f"cat $(ls -d {ROOT}/{claim}/*/{name} | head -n 1)"
            found[name] = kube("exec", "-n", namespace, pod, "--", "sh", "-c", command).encode()
    return found


def copy(kube: Kube, namespace: str, claim: str, image: str, target: Path) -> None:
    """Copies all that lies on ``claim`` into the folder ``target``."""
    with mounted(kube, namespace, (claim,), image) as pod:
        packed = kube("exec", "-n", namespace, pod, "--", "sh", "-c", f"tar -czf - -C {ROOT}/{claim} . | base64")
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed)), mode="r:gz") as archive:
        archive.extractall(target, [member for member in archive if _stays_inside(member)])  # noqa: S202


def _stays_inside(member: tarfile.TarInfo) -> bool:
    """A file or folder below the target. Python's own filters came with 3.11.4, and Debian 12 has 3.11.2."""
    path = PurePosixPath(member.name)
    return (member.isreg() or member.isdir()) and not path.is_absolute() and ".." not in path.parts


@contextlib.contextmanager
def mounted(kube: Kube, namespace: str, claims: Sequence[str], image: str) -> Iterator[str]:
    """Name of a pod that mounts each of ``claims`` at ``/volumes/CLAIM`` for as long as the block runs; it goes in any
    case, and nothing waits for that."""
    pod = f"volume-loader-{uuid.uuid4().hex[:8]}"  # one of an interrupted demo may still be there
    kube("apply", "-f", "-", stdin=json.dumps(pod_of(namespace, pod, claims, image)))
    try:
        kube("wait", "-n", namespace, f"pod/{pod}", "--for=condition=Ready", "--timeout=240s")
        yield pod
    finally:
        kube("delete", "pod", pod, "-n", namespace, "--ignore-not-found", "--now", "--wait=false")


def _tar(trees: Mapping[str, Trees]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for claim, of in trees.items():
            for name, tree in of.items():
                archive.add(tree, arcname=f"{claim}/{name}", filter=_plain)
    return packed.getvalue()


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 65532
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member


def pod_of(namespace: str, name: str, claims: Sequence[str], image: str) -> dict[str, Any]:
    """A pod ``name`` that mounts each of ``claims`` at ``/volumes/CLAIM`` and waits for commands."""
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                                "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "loader", "image": image, "imagePullPolicy": "IfNotPresent",
                "command": ["python3", "-c", "import signal; signal.pause()"],
                "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                    "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": claim, "mountPath": f"{ROOT}/{claim}"} for claim in claims],
            }],
            "volumes": [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims],
        },
    }
