"""What pod templates may hold: a pod spec's parts that cannot weaken what the operator promises.

:mod:`pod_shape` says which fields there are. Here is what may stand in them: no name, path, port or variable of the
operator's own, and for containers of the operator none that changes which code or which device they use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from enginewright.core import labels
from enginewright.core.problems import Problem
from enginewright.core.servers.triton import TRITON
from enginewright.core.servers.vllm import VLLM
from enginewright.core.spec.parse import show
from enginewright.core.spec.pod_shape import (
    POD,
    SIDECAR,
    VOLUME,
    VOLUME_TYPES,
    Shape,
    departures,
    of_object,
    own_container,
)
from enginewright.core.spec.pod_template import JobPodTemplateSpec, PodTemplateSpec
from enginewright_builder.contract import CONNECTION_VARIABLES, CREDENTIAL_VARIABLES

# Where something is set that people look for here first.
POD_ELSEWHERE = {"nodeSelector": "spec.placement.nodeSelector", "tolerations": "spec.placement.tolerations",
                 "runtimeClassName": "config.runtimeClassName of the operator's chart"}
# As the apiserver checks them (k8s.io/apimachinery, util/validation: IsQualifiedName, IsValidLabelValue).
KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
NAME_CHARACTERS = "letters, digits, '-', '_' and '.', a letter or digit first and last"
RESERVED_KEYS = ("app.kubernetes.io/", f"{labels.GROUP}/")
# By keys of these domains and those below them Kubernetes' own parts learn what to do with a pod, AppArmor for
# instance; these two of them are harmless.
KUBERNETES = re.compile(r"([^/]+\.)?(kubernetes|k8s)\.io/.*")
HARMLESS_KEYS = ("cluster-autoscaler.kubernetes.io/safe-to-evict", "kubectl.kubernetes.io/default-container")

# Variables of the operator's containers: none of them names a file that is run or loaded, or a device.
COMMON_ENV = (*CONNECTION_VARIABLES, "LANG", "LC_ALL", "TZ")
# NVIDIA's runtime takes the node's devices from them, whatever the pod was given.
DEVICE_ENV = "NVIDIA_"
# What images run and read lies below these. Certificates alone may be put into them.
IMAGE_FOLDERS = frozenset({"app", "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "opt", "proc",
                           "root", "run", "sbin", "sys", "tmp", "usr", "var", "workspace"})
CERTIFICATES = ("/etc/ssl/certs", "/etc/pki/tls/certs")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Of the field ``template``. Containers named in ``own`` may be added to, those of ``reserved_containers`` not;
    others are ``sidecars``, if there may be any. ``own_elsewhere`` tells where other parts of the own ones are set;
    ``own_env`` are the variables that those take, a name or the beginning of one. ``reserved_keys`` are prefixes of
    labels and annotations that others write, ``keys_elsewhere`` where. ``reserved_volumes`` are regular expressions of
    whole names. Of a pod with several sets of containers every name is reserved, whether this object's has them or
    not."""

    template: str
    own: tuple[str, ...]
    own_called: str
    sidecars: bool
    own_env: tuple[str, ...]
    reserved_volumes: tuple[str, ...]
    reserved_paths: tuple[str, ...]
    reserved_containers: tuple[str, ...] = ()
    reserved_ports: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    own_elsewhere: Mapping[str, str] = field(default_factory=dict)
    reserved_keys: tuple[str, ...] = RESERVED_KEYS
    keys_elsewhere: Mapping[str, str] = field(default_factory=dict)

    @property
    def pod_keys(self) -> tuple[str, ...]:
        return tuple(sorted(key for key in (*POD, "containers", "volumes") if key not in self.left_out))

    def reserves(self, volume: str) -> bool:
        return any(re.fullmatch(pattern, volume) for pattern in self.reserved_volumes)

    def problem(self, where: str, value: object, message: str, remedy: str) -> Problem:
        return Problem(field=f"{self.template}.{where}", value=show(value), message=message, remedy=remedy)


SERVING = Rules(
    template="spec.serving.podTemplate",
    own=(labels.CONTAINER_SERVER,),
    own_called="the server's container",
    sidecars=True,
    own_env=(*COMMON_ENV, "OMP_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX"),
    reserved_containers=(labels.CONTAINER_VERIFY, labels.CONTAINER_FITS, labels.CONTAINER_QUALITY),
    reserved_ports={port.name: port.number for server in (TRITON, VLLM) for port in server.ports}
    | {labels.PORT_QUALITY: labels.QUALITY_PORT},
    reserved_volumes=("engine", "engine-store", "tmp", "shm", "smoke-test", labels.VOLUME_TRACES,
                      labels.VOLUME_CAPTURE_KEYS, labels.VOLUME_TRUSTED, labels.VOLUME_VERIFY_TMP,
                      labels.VOLUME_QUALITY_TMP, labels.VOLUME_BATCH_TMP),
    reserved_paths=("/models", "/smoke-test", "/tmp", "/dev/shm", "/engine", "/store",  # noqa: S108  (in the pod)
                    "/reference", labels.TRACES_PATH, labels.TRUSTED_PATH, labels.CAPTURES_PATH,
                    labels.CAPTURE_KEYS_PATH),
    own_elsewhere={"resources": "spec.serving.resources", "image": "spec.serving.image",
                   "args": "config.serverArgs of the operator's chart"},
)

JOBS = Rules(
    template="spec.engine.podTemplate",
    own=(labels.COMPONENT_RESOLVE, labels.COMPONENT_BUILD),
    own_called="the containers of these Jobs",
    sidecars=False,
    own_env=(*COMMON_ENV, *CREDENTIAL_VARIABLES),
    reserved_volumes=("request", labels.SOURCE_VOLUMES, "store", "signature-key", "signing-keys",
                      labels.VOLUME_CAPTURE_KEYS, "tmp", "shm", "work", "witness", "control", "server-tmp",
                      "server-shm", labels.VOLUME_KEY, labels.VOLUME_TRUSTED, labels.VOLUME_STEPS,
                      labels.VOLUME_STEPS_TMP),
    reserved_paths=("/request", "/sources", "/store", "/signature", "/signing-keys", labels.CAPTURE_KEYS_PATH,
                    "/work", "/witness", "/control", labels.KEY_PATH, labels.TRUSTED_PATH, labels.STEPS_PATH,
                    "/tmp", "/dev/shm"),  # noqa: S108  (in the pod)
    left_out=("topologySpreadConstraints",),
    own_elsewhere={"resources": "spec.engine.resources", "image": "images.builder of the operator's chart",
                   "envFrom": "spec.source.secretRef"},
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
            yield rules.problem(f"metadata.labels.{key}", value, "is not a label value",
                                f"write at most 63 {NAME_CHARACTERS}, or put it into an annotation")
    yield from _pod(rules, template.spec)


def _key(rules: Rules, where: str, key: str) -> Iterator[Problem]:
    kubernetes = KUBERNETES.fullmatch(key) and key not in HARMLESS_KEYS
    if key.startswith(rules.reserved_keys) or kubernetes:
        elsewhere = rules.keys_elsewhere.get(key)
        remedy = f"set {elsewhere} in its place" if elsewhere else "choose a key with a prefix of your own"
        yield rules.problem(where, key, "cannot be set here", remedy)
    elif not KEY.fullmatch(key):
        yield rules.problem(where, key, "is not a key of labels or annotations",
                            f"write at most 63 {NAME_CHARACTERS}, after an optional DNS name and '/'")


def _pod(rules: Rules, spec: Mapping[str, Any]) -> Iterator[Problem]:
    volumes = {name for volume in of_object(spec, "volumes") if isinstance(name := volume.get("name"), str)}
    for key, value in spec.items():
        if key not in rules.pod_keys:
            elsewhere = POD_ELSEWHERE.get(key)
            remedy = f"set {elsewhere} in its place" if elsewhere else (
                f"remove it; allowed are {', '.join(rules.pod_keys)}")
            yield rules.problem(f"spec.{key}", value, "cannot be set here", remedy)
        elif key in POD:
            yield from _shaped(rules, POD[key], value, f"spec.{key}")
        elif isinstance(value, list):
            yield from _entries(rules, key, value, volumes)
        else:
            yield rules.problem(f"spec.{key}", value, "is not a list", "write a list, as in a pod")


def _shaped(rules: Rules, shape: Shape, value: object, where: str) -> Iterator[Problem]:
    for found in departures(shape, value, where):
        yield rules.problem(found.where, found.value, found.message, found.remedy)


def _entries(rules: Rules, key: str, entries: list[Any], volumes: set[str]) -> Iterator[Problem]:
    names: set[str] = set()
    for index, entry in enumerate(entries):
        where = f"spec.{key}[{index}]"
        if not isinstance(entry, Mapping):
            yield rules.problem(where, entry, "is not an object", "write an object, as in a pod")
            continue
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            yield rules.problem(f"{where}.name", name, "is required", "add it")
            continue
        if name in names:
            yield rules.problem(f"{where}.name", name, "is repeated", "give each its own name")
        names.add(name)
        yield from (_container(rules, where, name, entry, volumes) if key == "containers" else
                    _volume(rules, where, name, entry))


def _volume(rules: Rules, where: str, name: str, volume: Mapping[str, Any]) -> Iterator[Problem]:
    if rules.reserves(name):
        yield rules.problem(f"{where}.name", name, "is a volume of the operator", "choose another name")
    yield from _shaped(rules, VOLUME, volume, where)
    kinds = [key for key in volume if key != "name"]
    if len(kinds) != 1:
        yield rules.problem(where, kinds, "is not exactly one kind of volume", "write one of "
                                                                               f"{', '.join(VOLUME_TYPES)}")


def _container(rules: Rules, where: str, name: str, container: Mapping[str, Any],
               volumes: set[str]) -> Iterator[Problem]:
    own = name in rules.own
    if name in rules.reserved_containers:
        yield rules.problem(f"{where}.name", name, "is a container of the operator", "choose another name")
    if not (own or rules.sidecars):
        yield rules.problem(f"{where}.name", name, "is not a container of these pods, which end with their own "
                                                   "containers",
                            f"write {' or '.join(rules.own)}, to add env and volumeMounts to it")
        return
    yield from _shaped(rules, own_container(rules.own_elsewhere) if own else SIDECAR, container, where)
    for mount in of_object(container, "volumeMounts"):
        yield from _mount(rules, where, mount, volumes, own=own)
    if own:
        yield from _own_env(rules, where, container)
    else:
        yield from _sidecar(rules, where, container)


def _sidecar(rules: Rules, where: str, container: Mapping[str, Any]) -> Iterator[Problem]:
    if not isinstance(container.get("image"), str):
        yield rules.problem(f"{where}.image", container.get("image"), "is required", "add it")
    for port in of_object(container, "ports"):
        for taken in (port.get("containerPort"), port.get("name")):
            if taken in (*rules.reserved_ports, *rules.reserved_ports.values()):
                yield rules.problem(f"{where}.ports", taken, "is a port of the operator", "choose another")
    given = [("env", variable.get("name")) for variable in of_object(container, "env")]
    given += [("envFrom", source.get("prefix")) for source in of_object(container, "envFrom")]
    for kind, name in given:
        if str(name).startswith(DEVICE_ENV):
            yield rules.problem(f"{where}.{kind}", name, "gives a container devices that the pod does not have",
                                "remove it; choose devices under spec.placement")


def _own_env(rules: Rules, where: str, container: Mapping[str, Any]) -> Iterator[Problem]:
    for variable in of_object(container, "env"):
        name = str(variable.get("name"))
        if not _is_one_of(name, rules.own_env):
            yield rules.problem(f"{where}.env", variable.get("name"),
                                f"may change the code or the device of {rules.own_called}",
                                f"remove it; {_listed(rules.own_env)} may be set")


def _is_one_of(name: str, allowed: Iterable[str]) -> bool:
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in allowed)


def _listed(allowed: Iterable[str]) -> str:
    return ", ".join(one for one in allowed if one.upper() == one)


def _mount(rules: Rules, where: str, mount: Mapping[str, Any], volumes: set[str], *, own: bool) -> Iterator[Problem]:
    where = f"{where}.volumeMounts"
    name, path, sub_path = mount.get("name"), mount.get("mountPath"), mount.get("subPath", "")
    if not isinstance(name, str) or name not in volumes:
        yield rules.problem(where, name, f"is not a volume of {rules.template}.spec.volumes",
                            "name one of those; the operator's volumes are for its own containers")
    if not isinstance(path, str) or not path.startswith("/") or not _plain(path):
        yield rules.problem(where, path, "is not a mount path", "write an absolute path without '..'")
    elif own and not _may_be_mounted(rules, path):
        yield rules.problem(where, path, "is used by the operator or the image",
                            "choose another path, such as /mnt/NAME; certificates may go below "
                            f"{' and '.join(CERTIFICATES)}")
    if isinstance(sub_path, str) and (sub_path.startswith("/") or not _plain(sub_path)):
        yield rules.problem(where, sub_path, "may lead out of its volume", "write a relative path without '..'")


def _plain(path: str) -> bool:
    return not {".", ".."} & set(path.split("/")) and "\0" not in path


def _may_be_mounted(rules: Rules, path: str) -> bool:
    """Neither above nor below what is reserved: what is mounted later hides what is there, and what is mounted below
    makes folders in it."""
    parts = _parts(path)
    if not parts or any(_one_in_the_other(parts, _parts(reserved)) for reserved in rules.reserved_paths):
        return False
    certificates = any(parts[:len(inside)] == inside for inside in map(_parts, CERTIFICATES))
    return certificates or parts[0] not in IMAGE_FOLDERS


def _one_in_the_other(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)
