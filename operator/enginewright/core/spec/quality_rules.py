"""What is wrong with a quality monitor that a spec asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from enginewright.core import labels
from enginewright.core.problems import Problem
from enginewright.core.quality import samples_needed
from enginewright.core.spec.model import Spec
from enginewright.core.spec.parse import show


def quality_problems(spec: Spec) -> Iterator[Problem]:
    if spec.quality is None:
        return
    needed = samples_needed(spec.accuracy.tolerance)
    if spec.quality.window < needed:
        yield Problem(
            field="spec.quality.window", value=show(spec.quality.window),
            message=f"is less than the {needed} answers that can show a tolerance of {spec.accuracy.tolerance:g} even "
                    "if all agree",
            remedy=f"write at least {2 * needed}, or raise spec.accuracy.tolerance")  # fmt: skip
    pod = spec.serving.pod_template.spec
    for key, name in (("containers", labels.CONTAINER_QUALITY), ("volumes", labels.VOLUME_TRACES)):
        if any(entry.get("name") == name for entry in _entries(pod.get(key))):
            yield _taken(f"spec.serving.podTemplate.spec.{key}", name, "has the name of a part of the quality monitor")
    for container in _entries(pod.get("containers")):
        own = container.get("name") == labels.CONTAINER_SERVER
        if own and any(str(mount.get("mountPath")).rstrip("/") == labels.TRACES_PATH
                       for mount in _entries(container.get("volumeMounts"))):
            yield _taken("spec.serving.podTemplate.spec.containers", labels.TRACES_PATH,
                         "is where the quality monitor's traces lie")
        if any(port.get("containerPort") == labels.QUALITY_PORT for port in _entries(container.get("ports"))):
            yield _taken("spec.serving.podTemplate.spec.containers", labels.QUALITY_PORT,
                         "is the port of the quality monitor")


def _entries(found: object) -> Iterator[Mapping[str, Any]]:
    """Those that are objects: what else stands there is told elsewhere."""
    yield from (entry for entry in (found if isinstance(found, list | tuple) else ()) if isinstance(entry, Mapping))


def _taken(field: str, value: str | int, message: str) -> Problem:
    return Problem(field=field, value=show(value), message=message, remedy="choose another, or remove spec.quality")
