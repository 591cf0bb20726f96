"""Names that a container of ours beside the server needs for itself, and the user's pod template may not take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from enginewright.core import labels
from enginewright.core.problems import Problem
from enginewright.core.spec.model import Spec
from enginewright.core.spec.parse import show

CONTAINERS = "spec.serving.podTemplate.spec.containers"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """``what`` it is, and the field that it is ``asked_by``; ``volume`` is mounted in it and the server at ``path``."""

    what: str
    asked_by: str
    container: str
    volume: str
    path: str
    port: int


def taken_names(spec: Spec, own: Beside) -> Iterator[Problem]:
    pod = spec.serving.pod_template.spec
    for key, name in (("containers", own.container), ("volumes", own.volume)):
        if any(entry.get("name") == name for entry in _entries(pod.get(key))):
            yield _taken(f"spec.serving.podTemplate.spec.{key}", name, f"has the name of a part of {own.what}", own)
    for container in _entries(pod.get("containers")):
        server, mounts = container.get("name") == labels.CONTAINER_SERVER, _entries(container.get("volumeMounts"))
        if server and any(str(mount.get("mountPath")).rstrip("/") == own.path for mount in mounts):
            yield _taken(CONTAINERS, own.path, f"is where a volume of {own.what} is mounted", own)
        if any(port.get("containerPort") == own.port for port in _entries(container.get("ports"))):
            yield _taken(CONTAINERS, own.port, f"is the port of {own.what}", own)


def _entries(found: object) -> Iterator[Mapping[str, Any]]:
    """Those that are objects: what else stands there is told elsewhere."""
    yield from (entry for entry in (found if isinstance(found, list | tuple) else ()) if isinstance(entry, Mapping))


def _taken(field: str, value: str | int, message: str, own: Beside) -> Problem:
    return Problem(field=field, value=show(value), message=message, remedy=f"choose another, or remove {own.asked_by}")
