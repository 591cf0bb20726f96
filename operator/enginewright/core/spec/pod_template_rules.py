"""What pod templates may hold: a pod spec's parts that cannot weaken what the operator promises.

Left out on purpose: probes, commands, ports, security contexts, service accounts, host namespaces, restart policies and
node placement (``spec.placement`` has it, because engines are built for a device).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from enginewright.core import labels
from enginewright.core.problems import Problem
from enginewright.core.spec.parse import show
from enginewright.core.spec.pod_template import JobPodTemplateSpec, PodTemplateSpec

LISTS = ("containers", "hostAliases", "imagePullSecrets", "topologySpreadConstraints", "volumes")
OBJECTS = ("affinity", "dnsConfig")
TEXTS = ("priorityClassName", "schedulerName")
# Of containers that the operator makes.
OWN_KEYS = ("name", "env", "volumeMounts")
# Of sidecars; what is missing here is the operator's.
SIDECAR_KEYS = ("name", "image", "imagePullPolicy", "command", "args", "env", "envFrom", "ports", "resources",
                "volumeMounts", "livenessProbe", "readinessProbe", "startupProbe", "workingDir")
# Where something is set that people look for here first.
POD_ELSEWHERE = {"nodeSelector": "spec.placement.nodeSelector", "tolerations": "spec.placement.tolerations",
                 "runtimeClassName": "config.runtimeClassName of the operator's chart"}
# As the apiserver checks them (k8s.io/apimachinery, util/validation: IsQualifiedName, IsValidLabelValue).
KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
NAME_CHARACTERS = "letters, digits, '-', '_' and '.', a letter or digit first and last"
RESERVED_ENV = ("LD_PRELOAD", "LD_LIBRARY_PATH")
RESERVED_KEYS = ("app.kubernetes.io/", f"{labels.GROUP}/")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Of the field ``template``. Containers named in ``own`` may be added to, those of ``reserved_containers`` not;
    others are ``sidecars``, if there may be any. ``own_elsewhere`` tells where other parts of the own ones are set.
    ``reserved_keys`` are prefixes of labels and annotations that somebody else writes, ``keys_elsewhere`` where."""

    template: str
    own: tuple[str, ...]
    own_called: str
    sidecars: bool
    reserved_volumes: tuple[str, ...]
    reserved_paths: tuple[str, ...]
    reserved_containers: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    pod_elsewhere: Mapping[str, str] = field(default_factory=lambda: POD_ELSEWHERE)
    own_elsewhere: Mapping[str, str] = field(default_factory=dict)
    reserved_keys: tuple[str, ...] = RESERVED_KEYS
    keys_elsewhere: Mapping[str, str] = field(default_factory=dict)

    @property
    def pod_keys(self) -> tuple[str, ...]:
        return tuple(key for key in LISTS + OBJECTS + TEXTS if key not in self.left_out)

    def problem(self, where: str, value: object, message: str, remedy: str) -> Problem:
        return Problem(field=f"{self.template}.{where}", value=show(value), message=message, remedy=remedy)


SERVING = Rules(
    template="spec.serving.podTemplate",
    own=(labels.CONTAINER_SERVER,),
    own_called="the server's container",
    sidecars=True,
    reserved_containers=(labels.CONTAINER_VERIFY, labels.CONTAINER_FITS),
    reserved_volumes=("engine", "tmp", "shm", "smoke-test"),
    reserved_paths=("/models", "/smoke-test", "/tmp", "/dev/shm"),  # noqa: S108  (in the pod)
    own_elsewhere={"resources": "spec.serving.resources", "image": "spec.serving.image",
                   "args": "config.serverArgs of the operator's chart"},
)

JOBS = Rules(
    template="spec.engine.podTemplate",
    own=(labels.COMPONENT_RESOLVE, labels.COMPONENT_BUILD),
    own_called="the containers of these Jobs",
    sidecars=False,
    reserved_volumes=("request", "source-0", "source-1", "source-2", "store", "signature-key", "tmp", "shm"),
    reserved_paths=("/request", "/sources", "/store", "/signature", "/tmp", "/dev/shm"),  # noqa: S108  (in the pod)
    left_out=("topologySpreadConstraints",),
    own_elsewhere={"resources": "spec.engine.resources", "image": "images.builder of the operator's chart",
                   "envFrom": "spec.source.credentialsFrom"},
    reserved_keys=(*RESERVED_KEYS, "batch.kubernetes.io/", "controller-uid", "job-name", labels.KUEUE_QUEUE),
    keys_elsewhere={labels.KUEUE_QUEUE: "spec.engine.queueName"},
)


def check_serving_template(template: PodTemplateSpec) -> Iterator[Problem]:
    yield from _check(SERVING, template)


def check_job_template(template: JobPodTemplateSpec) -> Iterator[Problem]:
    yield from _check(JOBS, template)


def _check(rules: Rules, template: PodTemplateSpec | JobPodTemplateSpec) -> Iterator[Problem]:
    for kind, entries in (("labels", template.metadata.labels), ("annotations", template.metadata.annotations)):
        for key in entries:
            yield from _key(rules, f"metadata.{kind}", key)
    for key, value in template.metadata.labels.items():
        if not LABEL_VALUE.fullmatch(value):
            yield rules.problem(f"metadata.labels.{key}", value, "is no value of a label",
                                f"write at most 63 {NAME_CHARACTERS}, or put it into an annotation")
    yield from _pod(rules, template.spec)


def _key(rules: Rules, where: str, key: str) -> Iterator[Problem]:
    if key.startswith(rules.reserved_keys):
        elsewhere = rules.keys_elsewhere.get(key)
        remedy = f"set {elsewhere} in its place" if elsewhere else "choose a key with a prefix of your own"
        yield rules.problem(where, key, "cannot be set here", remedy)
    elif not KEY.fullmatch(key):
        yield rules.problem(where, key, "is no key of labels and annotations",
                            f"write at most 63 {NAME_CHARACTERS}; before them may stand a DNS name and '/'")


def _pod(rules: Rules, spec: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in spec.items():
        if key not in rules.pod_keys:
            yield rules.problem(f"spec.{key}", value, "cannot be set here",
                                _remedy(rules.pod_elsewhere.get(key), sorted(rules.pod_keys)))
            continue
        wanted = list if key in LISTS else dict if key in OBJECTS else str
        if not isinstance(value, wanted):
            kind = {list: "a list", dict: "an object", str: "a text"}[wanted]
            yield rules.problem(f"spec.{key}", value, f"is not {kind}", f"write {kind}, as in a pod")
        elif key in LISTS:
            yield from _entries(rules, key, list(value))


def _remedy(elsewhere: str | None, allowed: Iterable[str]) -> str:
    return f"set {elsewhere} in its place" if elsewhere else f"remove it; allowed are {', '.join(allowed)}"


def _entries(rules: Rules, key: str, entries: list[Any]) -> Iterator[Problem]:
    names: set[str] = set()
    for index, entry in enumerate(entries):
        where = f"spec.{key}[{index}]"
        if not isinstance(entry, Mapping):
            yield rules.problem(where, entry, "is not an object", "write an object, as in a pod")
            continue
        if key not in ("containers", "volumes"):
            continue
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            yield rules.problem(f"{where}.name", name, "is required", "add it")
            continue
        if name in names:
            yield rules.problem(f"{where}.name", name, "is there twice", "give each a name of its own")
        names.add(name)
        yield from _container(rules, where, name, entry) if key == "containers" else _volume(rules, where, name)


def _volume(rules: Rules, where: str, name: str) -> Iterator[Problem]:
    if name in rules.reserved_volumes:
        yield rules.problem(f"{where}.name", name, "is a volume of the operator's", "choose another name")


def _container(rules: Rules, where: str, name: str, container: Mapping[str, Any]) -> Iterator[Problem]:
    own = name in rules.own
    if name in rules.reserved_containers:
        yield rules.problem(f"{where}.name", name, "is a container of the operator's", "choose another name")
    if not (own or rules.sidecars):
        yield rules.problem(f"{where}.name", name, "is no container of these pods, which end with their own",
                            f"write {' or '.join(rules.own)}, to add env and volumeMounts to it")
        return
    allowed = OWN_KEYS if own else SIDECAR_KEYS
    for key, value in container.items():
        if key not in allowed:
            what = f"of {rules.own_called}" if own else "of a sidecar"
            yield rules.problem(f"{where}.{key}", value, f"{what} cannot be set here",
                                _remedy(rules.own_elsewhere.get(key) if own else None, allowed))
        elif key in ("env", "envFrom", "ports", "volumeMounts") and not _objects(value):
            yield rules.problem(f"{where}.{key}", value, "is not a list of objects", "write a list, as in a pod")
    if not own and not isinstance(container.get("image"), str):
        yield rules.problem(f"{where}.image", container.get("image"), "is required", "add it")
    if own:
        yield from _additions(rules, where, container)


def _additions(rules: Rules, where: str, container: Mapping[str, Any]) -> Iterator[Problem]:
    env, mounts = container.get("env", []), container.get("volumeMounts", [])
    for variable in env if _objects(env) else []:
        if variable.get("name") in RESERVED_ENV:
            yield rules.problem(f"{where}.env", variable["name"], "is the image's", "remove it")
    for mount in mounts if _objects(mounts) else []:
        if str(mount.get("mountPath")).rstrip("/") in rules.reserved_paths:
            yield rules.problem(f"{where}.volumeMounts", mount["mountPath"], "is where the operator mounts",
                                "choose another path")


def _objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
