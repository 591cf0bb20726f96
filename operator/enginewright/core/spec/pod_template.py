"""What ``serving.podTemplate`` may hold: a pod spec's parts that cannot weaken what the operator promises.

Left out on purpose: probes, commands, ports, security contexts, service accounts, host namespaces, restart policies and
node placement (``spec.placement`` has it, because engines are built for a device).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from enginewright.core import labels
from enginewright.core.problems import Problem
from enginewright.core.spec.parse import show
from enginewright.core.spec.serving import PodTemplateSpec

LISTS = ("containers", "hostAliases", "imagePullSecrets", "topologySpreadConstraints", "volumes")
OBJECTS = ("affinity", "dnsConfig")
TEXTS = ("priorityClassName", "schedulerName")
POD_KEYS = LISTS + OBJECTS + TEXTS
# Of the server's own container.
SERVER_KEYS = ("name", "env", "volumeMounts")
# Of sidecars; what is missing here is the operator's.
SIDECAR_KEYS = ("name", "image", "imagePullPolicy", "command", "args", "env", "envFrom", "ports", "resources",
                "volumeMounts", "livenessProbe", "readinessProbe", "startupProbe", "workingDir")
# Where something is set that people look for here first: of a pod, and of the server's own container.
POD_ELSEWHERE = {"nodeSelector": "spec.placement.nodeSelector", "tolerations": "spec.placement.tolerations",
                 "runtimeClassName": "config.runtimeClassName of the operator's chart"}
SERVER_ELSEWHERE = {"resources": "spec.serving.resources", "image": "spec.serving.image",
                    "args": "config.serverArgs of the operator's chart"}
RESERVED_CONTAINERS = (labels.CONTAINER_VERIFY, labels.CONTAINER_FITS)
RESERVED_VOLUMES = ("engine", "tmp", "shm", "smoke-test")
RESERVED_PATHS = ("/models", "/smoke-test", "/tmp", "/dev/shm")  # noqa: S108  (in the pod)
RESERVED_ENV = ("LD_PRELOAD", "LD_LIBRARY_PATH")
RESERVED_KEYS = ("app.kubernetes.io/", f"{labels.GROUP}/")

_FIELD = "spec.serving.podTemplate"


def check_pod_template(template: PodTemplateSpec) -> Iterator[Problem]:
    for kind, entries in (("labels", template.metadata.labels), ("annotations", template.metadata.annotations)):
        for key in entries:
            if key.startswith(RESERVED_KEYS):
                yield _problem(f"metadata.{kind}", key, "is the operator's", "choose a key with a prefix of your own")
    yield from _pod(template.spec)


def _problem(field: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=f"{_FIELD}.{field}", value=show(value), message=message, remedy=remedy)


def _pod(spec: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in spec.items():
        if key not in POD_KEYS:
            yield _problem(f"spec.{key}", value, "cannot be set here",
                           _remedy(POD_ELSEWHERE.get(key), sorted(POD_KEYS)))
            continue
        wanted = list if key in LISTS else dict if key in OBJECTS else str
        if not isinstance(value, wanted):
            kind = {list: "a list", dict: "an object", str: "a text"}[wanted]
            yield _problem(f"spec.{key}", value, f"is not {kind}", f"write {kind}, as in a pod")
        elif key in LISTS:
            yield from _entries(key, list(value))


def _remedy(elsewhere: str | None, allowed: Iterable[str]) -> str:
    return f"set {elsewhere} in its place" if elsewhere else f"remove it; allowed are {', '.join(allowed)}"


def _entries(key: str, entries: list[Any]) -> Iterator[Problem]:
    names: set[str] = set()
    for index, entry in enumerate(entries):
        field = f"spec.{key}[{index}]"
        if not isinstance(entry, Mapping):
            yield _problem(field, entry, "is not an object", "write an object, as in a pod")
            continue
        if key not in ("containers", "volumes"):
            continue
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            yield _problem(f"{field}.name", name, "is required", "add it")
            continue
        if name in names:
            yield _problem(f"{field}.name", name, "is there twice", "give each a name of its own")
        names.add(name)
        yield from _container(field, name, entry) if key == "containers" else _volume(field, name)


def _volume(field: str, name: str) -> Iterator[Problem]:
    if name in RESERVED_VOLUMES:
        yield _problem(f"{field}.name", name, "is a volume of the operator's", "choose another name")


def _container(field: str, name: str, container: Mapping[str, Any]) -> Iterator[Problem]:
    if name in RESERVED_CONTAINERS:
        yield _problem(f"{field}.name", name, "is a container of the operator's", "choose another name")
    own = name == labels.CONTAINER_SERVER
    allowed = SERVER_KEYS if own else SIDECAR_KEYS
    for key, value in container.items():
        if key not in allowed:
            what = "of the server's container" if own else "of a sidecar"
            yield _problem(f"{field}.{key}", value, f"{what} cannot be set here",
                           _remedy(SERVER_ELSEWHERE.get(key) if own else None, allowed))
        elif key in ("env", "envFrom", "ports", "volumeMounts") and not _objects(value):
            yield _problem(f"{field}.{key}", value, "is not a list of objects", "write a list, as in a pod")
    if not own and not isinstance(container.get("image"), str):
        yield _problem(f"{field}.image", container.get("image"), "is required", "add it")
    if own:
        yield from _server(field, container)


def _server(field: str, container: Mapping[str, Any]) -> Iterator[Problem]:
    env, mounts = container.get("env", []), container.get("volumeMounts", [])
    for variable in env if _objects(env) else []:
        if variable.get("name") in RESERVED_ENV:
            yield _problem(f"{field}.env", variable["name"], "is the server image's", "remove it")
    for mount in mounts if _objects(mounts) else []:
        if str(mount.get("mountPath")).rstrip("/") in RESERVED_PATHS:
            yield _problem(f"{field}.volumeMounts", mount["mountPath"], "is where the operator mounts",
                           "choose another path")


def _objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
