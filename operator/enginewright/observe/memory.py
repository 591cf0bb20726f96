"""What the operator remembers of the cluster, so that a pass which has nothing to do asks the apiserver for nothing.

Three sources keep it up to date: the events of the watches, the answers to the operator's own writes, and whatever a
pass has read from the apiserver. Of two states of an object the later one stays, by resourceVersion: Kubernetes counts
all changes of a kind in one sequence (KEP-5504), so that a later state has the larger number. Watches can lose events,
deletions above all; :meth:`Memory.heal` compares what is remembered with a list.

What is remembered may be behind the cluster by the moment that an event takes. So nothing but a number of replicas is
decided on it: see :mod:`~enginewright.reconcile.passes`.

An object is kept as packed bytes: nobody who reads it can change it, and ten thousand models take tens of megabytes.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from enginewright.clients.errors import RefusedError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import CLAIM, CONFIG_MAP, DEPLOYMENT, Resource
from enginewright.core import labels
from enginewright.observe.fields import Raw, labels_of, name_of, section, uid_of
from enginewright.observe.kinds import SELECTORS, WATCHED

# Of packed objects. Whoever may write objects chooses how large they are: what has no room is not kept, and passes read
# it from the apiserver.
BYTES: Final = 64 << 20
OBJECT_BYTES: Final = 128 << 10
SERVICE_NAME: Final = "kubernetes.io/service-name"
# Labels that passes select by.
INDEXED: Final = (labels.MODEL, SERVICE_NAME, labels.FLEET)
Place: TypeAlias = tuple[Resource, str]  # a kind, and the namespace


@dataclass(slots=True)
class _Entry:
    """``packed`` is None where the apiserver has to be asked: the object is known to have changed, or was not kept.
    ``since`` is when that was learnt, on the memory's clock."""

    uid: str
    version: int
    labels: Mapping[str, str]
    packed: bytes | None
    since: float


class Memory:
    """For the event loop's thread only. ``namespaces`` empty means all of them; ``most`` is bytes of packed objects."""

    def __init__(
        self, kube: KubeClient, namespaces: Sequence[str] = (), *, clock: Callable[[], float] = time.monotonic,
        most: int = BYTES,
    ) -> None:
        self._kube = kube
        self._namespaces = tuple(namespaces)
        self._clock = clock
        self._most = most
        self.held = 0
        self._entries: defaultdict[Place, dict[str, _Entry]] = defaultdict(dict)
        self._names: defaultdict[tuple[Place, str, str], set[str]] = defaultdict(set)
        # What was listed whole: only there does an absent entry mean an absent object.
        self._listed: set[tuple[Resource, str]] = set()

    def count(self) -> int:
        """Objects of all kinds."""
        return sum(map(len, self._entries.values()))

    def now(self) -> float:
        return self._clock()

    def saw(self, resource: Resource, change: str | None, raw: Raw) -> None:
        """An event of a watch: ``change`` is ADDED, MODIFIED or DELETED, None for an object of its first list."""
        if change == "DELETED":
            self._drop((resource, _namespace_of(raw)), name_of(raw), uid_of(raw))
        else:
            self._keep(resource, raw)

    def wrote(self, resource: Resource, namespace: str, name: str, raw: Raw | None) -> None:
        """The operator has written an object. ``raw`` is its state after that, None where the answer does not tell it:
        then the apiserver is asked, until an event says what came of the write."""
        if resource not in WATCHED:
            return
        if raw is not None:
            self._keep(resource, raw)
        elif (entry := self._entries[resource, namespace].get(name)) is not None:
            self._unpack(entry)
            entry.since = self._clock()

    def read(self, resource: Resource, namespace: str, selector: str, found: Iterable[Raw], began: float) -> None:
        """A pass that began to read at ``began`` has ``found`` these objects, and ``selector`` selects no others."""
        if resource not in WATCHED:
            return
        names = set()
        for raw in found:
            names.add(name_of(raw))
            self._keep(resource, raw, began)
        place = resource, namespace
        for name in list(self._selected(place, selector)):
            if name not in names:
                self._drop_older(place, name, began)

    def confirm(self, resource: Resource, raw: Raw, began: float) -> None:
        """A pass that began to read at ``began`` has found the object in this state."""
        if resource in WATCHED:
            self._keep(resource, raw, began)

    def gone(self, resource: Resource, namespace: str, name: str, began: float) -> None:
        """A pass that began to read at ``began`` has found no such object."""
        self._drop_older((resource, namespace), name, began)

    def select(self, resource: Resource, namespace: str, selector: str) -> list[Object] | None:
        """The objects that the label selector selects; None where the apiserver has to be asked."""
        if not self._knows(resource, namespace):
            return None
        place, found = (resource, namespace), []
        for name in self._selected(place, selector):
            packed = self._entries[place][name].packed
            if packed is None:
                return None
            found.append(_unpacked(packed))
        return sorted(found, key=name_of)

    def one(self, resource: Resource, namespace: str, name: str) -> list[Object] | None:
        """The object in a list, an empty list where there is none, None where the apiserver has to be asked."""
        if not self._knows(resource, namespace):
            return None
        entry = self._entries[resource, namespace].get(name)
        if entry is None:
            return []
        return None if entry.packed is None else [_unpacked(entry.packed)]

    def version(self, resource: Resource, namespace: str, name: str) -> tuple[str, str] | None:
        """UID and resourceVersion of the object; None where the apiserver has to be asked, both empty where there is no
        object."""
        if not self._knows(resource, namespace):
            return None
        entry = self._entries[resource, namespace].get(name)
        if entry is None:
            return "", ""
        return None if entry.packed is None else (entry.uid, str(entry.version))

    async def heal(self) -> int:
        """Lists every kind, the first time whole, later its metadata alone, and returns how many objects had changed
        unseen. A namespace that refuses is not remembered. Raises
        :class:`~enginewright.clients.errors.ClientError`."""
        unseen = 0
        for resource in WATCHED:
            for namespace in self._namespaces or ("",):
                try:
                    unseen += await self._heal(resource, namespace)
                except RefusedError:
                    self._forget(resource, namespace)
        return unseen

    async def _heal(self, resource: Resource, namespace: str) -> int:
        began, first = self._clock(), (resource, namespace) not in self._listed
        listed: set[tuple[str, str]] = set()

        def look(raw: Object) -> bool:
            listed.add((_namespace_of(raw), name_of(raw)))
            return self._keep(resource, raw) if whole or resource == CONFIG_MAP else self._compare(resource, raw)

        whole = first and resource != CONFIG_MAP
        changed = await self._kube.gather(resource, namespace or None, look, labels=SELECTORS.get(resource, ""),
                                          metadata=not whole)
        unseen = sum(changed)
        for place in self._places(resource, namespace):
            for name in list(self._entries[place]):
                if (place[1], name) not in listed:
                    unseen += self._drop_older(place, name, began)
        self._listed.add((resource, namespace))
        return 0 if first else unseen

    def _compare(self, resource: Resource, raw: Raw) -> bool:
        """Whether an object whose metadata is ``raw`` had changed unseen: its new state has to be asked for."""
        place, version = (resource, _namespace_of(raw)), _version_of(raw)
        entry = self._entries[place].get(name_of(raw))
        if entry is not None and entry.version >= version:
            return False
        self._put(place, name_of(raw), _Entry(uid_of(raw), version, labels_of(raw), None, self._clock()))
        return True

    def _keep(self, resource: Resource, raw: Raw, began: float | None = None) -> bool:
        """Whether that is news. A read that began at ``began`` also confirms a state that was doubted before."""
        place, name, version = (resource, _namespace_of(raw)), name_of(raw), _version_of(raw)
        before = self._entries[place].get(name)
        if before is not None and 0 < version <= before.version:
            confirms = began is not None and began >= before.since and version == before.version
            if not (confirms and before.packed is None):
                return False
        room = self._most - self.held + (len(before.packed or b"") if before else 0)
        packed: bytes | None = _packed(resource, raw)
        if version == 0 or len(packed or b"") > min(room, OBJECT_BYTES):
            packed = None
        self._put(place, name, _Entry(uid_of(raw), version, labels_of(raw), packed, self._clock()))
        return True

    def _put(self, place: Place, name: str, entry: _Entry) -> None:
        self._remove(place, name)
        self._entries[place][name] = entry
        self.held += len(entry.packed or b"")
        for label in INDEXED:
            if (value := entry.labels.get(label)) is not None:
                self._names[place, label, value].add(name)

    def _remove(self, place: Place, name: str) -> None:
        entry = self._entries[place].pop(name, None)
        if entry is None:
            return
        self._unpack(entry)
        for label in INDEXED:
            if (value := entry.labels.get(label)) is not None:
                names = self._names[place, label, value]
                names.discard(name)
                if not names:
                    del self._names[place, label, value]

    def _unpack(self, entry: _Entry) -> None:
        self.held -= len(entry.packed or b"")
        entry.packed = None

    def _drop(self, place: Place, name: str, uid: str) -> None:
        """Not one of the same name that was made since: kopf hands the events of two objects on in any order."""
        entry = self._entries[place].get(name)
        if entry is not None and entry.uid == uid:
            self._remove(place, name)

    def _drop_older(self, place: Place, name: str, began: float) -> bool:
        entry = self._entries[place].get(name)
        if entry is None or entry.since > began:
            return False
        self._remove(place, name)
        return True

    def _selected(self, place: Place, selector: str) -> Iterator[str]:
        wanted = [term.partition("=")[::2] for term in selector.split(",") if term]
        indexed = next(((key, value) for key, value in wanted if key in INDEXED and value), None)
        names = self._names.get((place, *indexed), ()) if indexed else self._entries[place]
        for name in tuple(names):
            found = self._entries[place][name].labels
            if all(key in found and value in ("", found[key]) for key, value in wanted):
                yield name

    def _knows(self, resource: Resource, namespace: str) -> bool:
        return (resource, "") in self._listed or (resource, namespace) in self._listed

    def _places(self, resource: Resource, namespace: str) -> list[Place]:
        return [place for place in self._entries if place[0] == resource and namespace in ("", place[1])]

    def _forget(self, resource: Resource, namespace: str) -> None:
        self._listed.discard((resource, namespace))
        for place in self._places(resource, namespace):
            for name in list(self._entries[place]):
                self._remove(place, name)


def _packed(resource: Resource, raw: Raw) -> bytes:
    """Of ConfigMaps only the version counts, and of claims of others there may be many in a cluster."""
    if resource == CONFIG_MAP:
        return b""
    metadata = section(raw, "metadata")
    if resource == CLAIM:
        few = {key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
        slim: dict[str, Any] = {"metadata": few, "status": {"phase": section(raw, "status").get("phase")}}
    elif resource == DEPLOYMENT:  # its managers are told apart
        slim = dict(raw)
    else:
        slim = {**raw, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
    return zlib.compress(json.dumps(slim, separators=(",", ":")).encode(), 1)


def _unpacked(packed: bytes) -> Object:
    found: Object = json.loads(zlib.decompress(packed))
    return found


def _namespace_of(raw: Raw) -> str:
    return str(section(raw, "metadata").get("namespace") or "")


def _version_of(raw: Raw) -> int:
    """0 for one that is no number: which of two states is later cannot be told then, and the object is not kept."""
    version = str(section(raw, "metadata").get("resourceVersion") or "")
    return int(version) if version.isdecimal() else 0
