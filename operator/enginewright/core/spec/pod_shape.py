"""What parts of a pod users may write, field by field. What is not here is refused at every level, so that a field that
Kubernetes adds later is refused until it has been reviewed.

Left out on purpose: all that reaches the node (``hostPath``, ``hostPort``, devices, mount propagation), that brings a
token (``serviceAccountToken``, ``podCertificate``), that hands the work to a driver of unknown rights (inline ``csi``),
that lets a probe ask another host, and what is the operator's own (security contexts, commands of its containers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from enginewright_builder.contract import CAPTURE_SECRET, SIGNING_SECRET


@dataclass(frozen=True)
class Leaf:
    """A plain value of ``types``; ``taken`` are values that are the operator's alone."""

    called: str
    types: tuple[type, ...]
    taken: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Items:
    """A list."""

    of: Shape


@dataclass(frozen=True)
class Keys:
    """An object with no other fields than these; ``elsewhere`` says where to set some of the others."""

    fields: Mapping[str, Shape]
    elsewhere: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Free:
    """An object whose keys are the user's, such as labels."""

    of: Shape


Shape = Leaf | Items | Keys | Free


@dataclass(frozen=True)
class Departure:
    """``where`` is relative to what was looked at: ``.env[0].name``."""

    where: str
    value: object
    message: str
    remedy: str


def departures(shape: Shape, value: object, where: str = "") -> Iterator[Departure]:
    """All that ``shape`` does not allow. What is absent is not missed."""
    match shape:
        case Leaf():
            yield from _leaf(shape, value, where)
        case Items():
            yield from _items(shape, value, where)
        case Keys() | Free():
            yield from _object(shape, value, where)


def _leaf(shape: Leaf, value: object, where: str) -> Iterator[Departure]:
    if not isinstance(value, shape.types) or (isinstance(value, bool) and bool not in shape.types):
        yield Departure(where, value, f"is not {shape.called}", f"write {shape.called}, as in a pod")
    elif value in shape.taken:
        yield Departure(where, value, "is reserved for the operator", "name another one, or remove it")


def _items(shape: Items, value: object, where: str) -> Iterator[Departure]:
    if not isinstance(value, list):
        yield Departure(where, value, "is not a list", "write a list, as in a pod")
        return
    for index, entry in enumerate(value):
        yield from departures(shape.of, entry, f"{where}[{index}]")


def _object(shape: Keys | Free, value: object, where: str) -> Iterator[Departure]:
    if not isinstance(value, Mapping):
        yield Departure(where, value, "is not an object", "write an object, as in a pod")
        return
    for key, entry in value.items():
        if isinstance(shape, Free):
            yield from departures(shape.of, entry, f"{where}.{key}")
        elif key in shape.fields:
            yield from departures(shape.fields[key], entry, f"{where}.{key}")
        else:
            there = shape.elsewhere.get(key)
            remedy = f"set {there} in its place" if there else f"remove it; allowed are {', '.join(shape.fields)}"
            yield Departure(f"{where}.{key}", entry, "cannot be set here", remedy)


TEXT = Leaf("a text", (str,))
NUMBER = Leaf("a whole number", (int,))
FLAG = Leaf("true or false", (bool,))
QUANTITY = Leaf("a quantity", (str, int, float))
PORT = Leaf("a port", (str, int))
SECRET = Leaf("a text", (str,), frozenset({SIGNING_SECRET, CAPTURE_SECRET}))
TEXTS = Items(TEXT)


def _keys(**fields: Shape) -> Keys:
    return Keys(fields)


_ENTRIES = Items(_keys(key=TEXT, path=TEXT, mode=NUMBER))
_CONFIG_MAP = _keys(name=TEXT, items=_ENTRIES, optional=FLAG)
_OF_POD = Items(_keys(path=TEXT, mode=NUMBER, fieldRef=_keys(apiVersion=TEXT, fieldPath=TEXT),
                      resourceFieldRef=_keys(containerName=TEXT, resource=TEXT, divisor=QUANTITY)))
_AMOUNTS = _keys(**dict.fromkeys(("cpu", "memory", "ephemeral-storage"), QUANTITY))

# One of them beside its name. Less than Pod Security ``restricted`` allows: also without ``csi`` and ``image``.
VOLUME_TYPES: Mapping[str, Shape] = {
    "configMap": Keys({**_CONFIG_MAP.fields, "defaultMode": NUMBER}),
    "downwardAPI": _keys(items=_OF_POD, defaultMode=NUMBER),
    "emptyDir": _keys(medium=TEXT, sizeLimit=QUANTITY),
    "ephemeral": _keys(volumeClaimTemplate=_keys(
        metadata=_keys(labels=Free(TEXT), annotations=Free(TEXT)),
        spec=_keys(accessModes=TEXTS, storageClassName=TEXT, resources=_keys(requests=_keys(storage=QUANTITY),
                                                                             limits=_keys(storage=QUANTITY))))),
    "persistentVolumeClaim": _keys(claimName=TEXT, readOnly=FLAG),
    "projected": _keys(defaultMode=NUMBER, sources=Items(_keys(
        configMap=_CONFIG_MAP, secret=_keys(name=SECRET, items=_ENTRIES, optional=FLAG),
        downwardAPI=_keys(items=_OF_POD)))),
    "secret": _keys(secretName=SECRET, items=_ENTRIES, optional=FLAG, defaultMode=NUMBER),
}
VOLUME = Keys({"name": TEXT, **VOLUME_TYPES})

_ENV = Items(_keys(name=TEXT, value=TEXT, valueFrom=_keys(
    configMapKeyRef=_keys(name=TEXT, key=TEXT, optional=FLAG), secretKeyRef=_keys(name=SECRET, key=TEXT, optional=FLAG),
    fieldRef=_keys(apiVersion=TEXT, fieldPath=TEXT),
    resourceFieldRef=_keys(containerName=TEXT, resource=TEXT, divisor=QUANTITY))))
_ENV_FROM = Items(_keys(prefix=TEXT, configMapRef=_keys(name=TEXT, optional=FLAG),
                        secretRef=_keys(name=SECRET, optional=FLAG)))
_MOUNTS = Items(_keys(name=TEXT, mountPath=TEXT, readOnly=FLAG, subPath=TEXT))
# Of the pod itself: with a host, the kubelet would ask whom the user names.
_PROBE = _keys(
    exec=_keys(command=TEXTS), grpc=_keys(port=NUMBER, service=TEXT), tcpSocket=_keys(port=PORT),
    httpGet=_keys(path=TEXT, port=PORT, scheme=TEXT, httpHeaders=Items(_keys(name=TEXT, value=TEXT))),
    **dict.fromkeys(("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold", "failureThreshold",
                     "terminationGracePeriodSeconds"), NUMBER))


def own_container(elsewhere: Mapping[str, str]) -> Keys:
    """A container that the operator makes."""
    return Keys({"name": TEXT, "env": _ENV, "volumeMounts": _MOUNTS}, elsewhere)


# What is missing here is the operator's.
SIDECAR = Keys({
    "name": TEXT, "image": TEXT, "imagePullPolicy": TEXT, "command": TEXTS, "args": TEXTS, "env": _ENV,
    "envFrom": _ENV_FROM, "ports": Items(_keys(name=TEXT, containerPort=NUMBER, protocol=TEXT)),
    "resources": _keys(requests=_AMOUNTS, limits=_AMOUNTS), "volumeMounts": _MOUNTS, "livenessProbe": _PROBE,
    "readinessProbe": _PROBE, "startupProbe": _PROBE, "workingDir": TEXT,
})

_SELECTOR = _keys(matchLabels=Free(TEXT),
                  matchExpressions=Items(_keys(key=TEXT, operator=TEXT, values=TEXTS)))
_NODE_TERM = _keys(matchExpressions=Items(_keys(key=TEXT, operator=TEXT, values=TEXTS)),
                   matchFields=Items(_keys(key=TEXT, operator=TEXT, values=TEXTS)))
_POD_TERM = _keys(labelSelector=_SELECTOR, namespaceSelector=_SELECTOR, namespaces=TEXTS, topologyKey=TEXT,
                  matchLabelKeys=TEXTS, mismatchLabelKeys=TEXTS)
_REQUIRED, _PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", \
    "preferredDuringSchedulingIgnoredDuringExecution"
_PODS = Keys({_REQUIRED: Items(_POD_TERM), _PREFERRED: Items(_keys(weight=NUMBER, podAffinityTerm=_POD_TERM))})

# Of a pod beside its containers and volumes.
POD: Mapping[str, Shape] = {
    "affinity": _keys(
        nodeAffinity=Keys({_REQUIRED: _keys(nodeSelectorTerms=Items(_NODE_TERM)),
                           _PREFERRED: Items(_keys(weight=NUMBER, preference=_NODE_TERM))}),
        podAffinity=_PODS, podAntiAffinity=_PODS),
    "dnsConfig": _keys(nameservers=TEXTS, searches=TEXTS, options=Items(_keys(name=TEXT, value=TEXT))),
    "hostAliases": Items(_keys(ip=TEXT, hostnames=TEXTS)),
    "imagePullSecrets": Items(_keys(name=SECRET)),
    "priorityClassName": TEXT,
    "schedulerName": TEXT,
    "topologySpreadConstraints": Items(_keys(
        maxSkew=NUMBER, minDomains=NUMBER, topologyKey=TEXT, whenUnsatisfiable=TEXT, labelSelector=_SELECTOR,
        matchLabelKeys=TEXTS, nodeAffinityPolicy=TEXT, nodeTaintsPolicy=TEXT)),
}


def of_object(value: object, key: str) -> list[Mapping[str, Any]]:
    """The objects in the list ``key`` of ``value``; what else is there, :func:`departures` tells."""
    found = value.get(key) if isinstance(value, Mapping) else None
    return [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list) else []
