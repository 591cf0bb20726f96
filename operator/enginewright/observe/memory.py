"""What the operator remembers of the cluster, so that a pass which has nothing to do asks the apiserver for nothing.

Three sources keep it up to date: the events of the watches, the answers to the operator's own writes, and whatever a
pass has read from the apiserver. Of two states of an object the later one stays, by resourceVersion: Kubernetes counts
all changes of a kind in one sequence (KEP-5504), so that a later state has the larger number. Watches can lose events,
deletions above all; :meth:`Memory.heal` compares what is remembered with a list.

What is remembered may be behind the cluster by the moment that an event takes, and of each kind by another one. What
may be decided on it all the same stands in :mod:`~enginewright.reconcile.passes`.

Memory keeps an object as packed bytes, so that no reader can change it.
"""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from enginewright.clients.errors import ClientError, RefusedError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import CONFIG_MAP, OPTIMISED_MODEL, Resource
from enginewright.core import labels
from enginewright.core.internal import block
from enginewright.observe.fields import Raw, labels_of, name_of, section, uid_of
from enginewright.observe.kinds import SELECTORS, WATCHED
from enginewright.observe.naming import Names
from enginewright.observe.packing import Packer
from enginewright.observe.pages import Pages, line, place_of

# Of all that is remembered: packed objects, and so much beside each. A user who may write objects chooses how large and
# how many they are: what has no room is not kept, and passes read it from the apiserver.
BYTES: Final = 192 << 20
ENTRY_BYTES: Final = 1 << 10
OBJECT_BYTES: Final = 128 << 10
# How long a deletion is remembered: longer than a read takes that began before it.
GONE_SECONDS: Final = 120.0
SERVICE_NAME: Final = "kubernetes.io/service-name"
# As if it were a label, which no user can write: the answer of a server image that an object's status has.
ANSWER: Final = ".status.server"
# Likewise: the model whose marks a ConfigMap without an owner bears.
LEFT: Final = ".metadata.left"
LABEL_LENGTH: Final = 63
# Labels that passes select by; the first few have an index.
INDEXED: Final = (labels.MODEL, SERVICE_NAME, labels.FLEET, labels.FINGERPRINT, ANSWER, LEFT)
SELECTED: Final = frozenset({*INDEXED, labels.COMPONENT, labels.STEP, labels.BUILDS, labels.REVISION, labels.ENGINE})
Place: TypeAlias = tuple[Resource, str]  # a kind, and the namespace
# Called with an object whose last change no event has told: its metadata, or of one that is gone what is remembered.
Unseen: TypeAlias = Callable[[Resource, Raw], None]


@dataclass(slots=True)
class _Entry:
    """``body`` is None where the apiserver has to be asked: the object is known to have changed, or was not kept.
    ``since`` is when that was learnt, on the memory's clock."""

    uid: str
    version: int
    labels: Mapping[str, str]
    body: bytes | None
    since: float

    @property
    def size(self) -> int:
        return ENTRY_BYTES + len(self.body or b"")


class Memory:
    """For the event loop's thread only. ``namespaces`` empty means all of them; ``most`` is bytes of all that is
    remembered."""

    def __init__(
        self, kube: KubeClient, namespaces: Sequence[str] = (), *, unseen: Unseen = lambda *_: None,
        clock: Callable[[], float] = time.monotonic, most: int = BYTES,
    ) -> None:
        self._kube = kube
        self._namespaces = tuple(namespaces)
        self._unseen = unseen
        self._clock = clock
        self._most = most
        self._packer = Packer()
        self.held = 0
        self._entries: dict[Place, dict[str, _Entry]] = {}
        self._names = Names()
        # What was listed whole: only there does an absent entry mean an absent object. And what has no room.
        self._listed: set[Place] = set()
        self._overfull: set[Resource] = set()
        self._pages: dict[Place, Pages] = {}
        # Of objects that are gone, by UID: the last version that is known, and when that was learnt.
        self._gone: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def count(self) -> int:
        """Objects of all kinds."""
        return sum(map(len, self._entries.values()))

    def now(self) -> float:
        return self._clock()

    def saw(self, resource: Resource, change: str | None, raw: Raw) -> None:
        """An event of a watch: ``change`` is ADDED, MODIFIED or DELETED, None for an object of its first list."""
        if change != "DELETED":
            self._keep(resource, raw)
            return
        place, name, uid = (resource, _namespace_of(raw)), name_of(raw), uid_of(raw)
        self._bury(uid, _version_of(raw), self._clock())
        # Not one of the same name that was made since: kopf hands the events of two objects on in any order.
        if (entry := self._entry(place, name)) is not None and entry.uid == uid:
            self._remove(place, name)

    def wrote(self, resource: Resource, namespace: str, name: str, raw: Raw | None, version: str = "") -> None:
        """The operator has written an object. ``raw`` is its state after that, None where the answer does not tell it:
        then readers ask the apiserver until an event of that ``version``, or a later one, has come."""
        if resource not in WATCHED:
            return
        if raw is not None:
            self._keep(resource, raw)
        elif (entry := self._entry((resource, namespace), name)) is not None:
            before = int(version) - 1 if version.isdecimal() else entry.version
            self._put((resource, namespace), name, _Entry(entry.uid, max(entry.version, before), entry.labels, None,
                                                         self._clock()))

    def read(self, resource: Resource, namespace: str, selector: str, found: Iterable[Raw], began: float) -> None:
        """A pass that began to read at ``began`` has ``found`` these objects, and ``selector`` selects no others."""
        if resource not in WATCHED:
            return
        names = set()
        for raw in found:
            names.add(name_of(raw))
            self._keep(resource, raw, began)
        place = resource, namespace
        for name in tuple(self._selected(place, _terms(selector))):
            if name not in names:
                self._drop(place, name, began)

    def confirm(self, resource: Resource, raw: Raw, began: float) -> None:
        """A pass that began to read at ``began`` has found the object in this state."""
        if resource in WATCHED:
            self._keep(resource, raw, began)

    def gone(self, resource: Resource, namespace: str, name: str, began: float) -> None:
        """A pass that began to read at ``began`` has found no such object."""
        self._drop((resource, namespace), name, began)

    def select(self, resource: Resource, namespace: str, selector: str) -> list[Object] | None:
        """The objects that the label selector selects; None where the apiserver has to be asked."""
        terms, place = _terms(selector), (resource, namespace)
        if not self._knows(place) or any(key not in SELECTED for key, _ in terms):
            return None
        found = []
        for name in self._selected(place, terms):
            body = self._entries[place][name].body
            if body is None:
                return None
            found.append(self._packer.unpacked(resource, body))
        return sorted(found, key=name_of)

    def one(self, resource: Resource, namespace: str, name: str) -> list[Object] | None:
        """The object in a list, an empty list where there is none, None where the apiserver has to be asked."""
        if not self._knows((resource, namespace)):
            return None
        entry = self._entry((resource, namespace), name)
        if entry is None:
            return []
        return None if entry.body is None else [self._packer.unpacked(resource, entry.body)]

    def answered(self, namespace: str, key: str, machine: str) -> Object | None:
        """An object whose server image, on an architecture ``machine``, has answered the question ``key``: any, as all
        have the same answer, and there may be thousands."""
        place = OPTIMISED_MODEL, namespace
        for name in self._names.get((place, ANSWER), f"{key}/{machine}"):
            if (body := self._entries[place][name].body) is not None:
                return self._packer.unpacked(OPTIMISED_MODEL, body)
        return None

    def left(self, namespace: str, model: str) -> bool:
        """Whether a ConfigMap that bears the marks of ``model`` has no owner."""
        return bool(self._names.get(((CONFIG_MAP, namespace), LEFT), model))

    def version(self, resource: Resource, namespace: str, name: str) -> tuple[str, str] | None:
        """UID and resourceVersion of the object; None where the apiserver has to be asked, both empty where there is no
        object."""
        if not self._knows((resource, namespace)):
            return None
        entry = self._entry((resource, namespace), name)
        if entry is None:
            return "", ""
        return None if entry.body is None else (entry.uid, str(entry.version))

    async def heal(self) -> int:
        """Lists every kind, the first time whole, later its metadata alone, and returns how many objects were gone
        unseen. A namespace that refuses is not remembered. A kind that cannot be listed keeps no other from being
        compared; the first :class:`~enginewright.clients.errors.ClientError` is raised at the end."""
        vanished, trouble = 0, None
        for resource in WATCHED:
            for namespace in self._namespaces or ("",):
                try:
                    vanished += await self._heal((resource, namespace))
                except RefusedError:
                    self._forget((resource, namespace))
                except ClientError as error:
                    trouble = trouble or error
        if trouble is not None:
            raise trouble
        return vanished

    async def _heal(self, scope: Place) -> int:
        resource, namespace = scope
        began, first = self._clock(), scope not in self._listed
        self._overfull.discard(resource)
        whole = first and resource != CONFIG_MAP
        listed: set[tuple[str, str]] = set()

        def look(raw: Object) -> None:
            listed.add((_namespace_of(raw), name_of(raw)))
            if whole or resource == CONFIG_MAP:
                self._keep(resource, raw, began)
            elif self._compare(resource, raw, began):
                self._unseen(resource, raw)

        pages = None if whole else self._pages.setdefault(scope, Pages())
        if pages is not None:
            pages.begin(self._lines(scope))
        await self._kube.gather(resource, namespace or None, look, labels=SELECTORS.get(resource, ""),
                                metadata=not whole, known=pages)
        if pages is not None:
            listed |= {(where, name) for where, _, name in (place_of(one).partition("/") for one in pages.end())}
        vanished = 0
        for place in self._places(scope):
            for name in tuple(self._entries[place]):
                if (place[1], name) not in listed:
                    vanished += self._vanish(place, name, began)
        if resource not in self._overfull:
            self._listed.add(scope)
        return 0 if first else vanished

    def _lines(self, scope: Place) -> Iterator[str]:
        """Of what is remembered; one that has to be asked for is like none that is listed."""
        for place in self._places(scope):
            for name, entry in self._entries[place].items():
                yield line(place[1], name, entry.uid, str(entry.version) if entry.body is not None else "?")

    def _vanish(self, place: Place, name: str, began: float) -> bool:
        entry = self._entries[place][name]
        if not self._drop(place, name, began):
            return False
        metadata = {"namespace": place[1], "name": name, "uid": entry.uid, "labels": entry.labels}
        self._unseen(place[0], {"metadata": metadata})
        return True

    def _compare(self, resource: Resource, raw: Raw, began: float) -> bool:
        """Whether an object whose metadata is ``raw`` has changed unseen: its new state has to be asked for."""
        place, version = (resource, _namespace_of(raw)), _version_of(raw)
        entry = self._entry(place, name_of(raw))
        if entry is not None and (version == entry.version or not _outdates(version, entry, began)):
            return False
        if self._is_gone(uid_of(raw), version, began):
            return False
        self._put(place, name_of(raw), _Entry(uid_of(raw), version, _selected_by(resource, raw), None, self._clock()))
        return True

    def _keep(self, resource: Resource, raw: Raw, began: float | None = None) -> None:
        """The state ``raw`` of an object, as an event or an answer tells it, or a read that began at ``began``."""
        place, name, version = (resource, _namespace_of(raw)), name_of(raw), _version_of(raw)
        before = self._entry(place, name)
        if not _matches(labels_of(raw), _terms(SELECTORS.get(resource, ""))):
            return  # no event would tell of its end
        if before is not None and not _outdates(version, before, began):
            return
        if (before is not None and before.version == version and before.body is not None) or self._is_gone(
                uid_of(raw), version, began):
            return
        body: bytes | None = self._packer.packed(resource, raw)
        room = self._most - self.held - ENTRY_BYTES + (before.size if before else 0)
        if version == 0 or len(body or b"") > min(room, OBJECT_BYTES):
            body = None
        self._put(place, name, _Entry(uid_of(raw), version, _selected_by(resource, raw), body, self._clock()))

    def _put(self, place: Place, name: str, entry: _Entry) -> None:
        self._remove(place, name)
        if place[0] in self._overfull:
            return
        if self.held + entry.size > self._most:
            # Were it left out alone, it would be taken for an object that does not exist.
            self._overfull.add(place[0])
            for scope in [one for one in self._listed if one[0] == place[0]] or [(place[0], "")]:
                self._forget(scope)
            return
        self._entries.setdefault(place, {})[name] = entry
        self.held += entry.size
        for label in INDEXED:
            if (value := entry.labels.get(label)) is not None:
                self._names.add((place, label), value, name)

    def _remove(self, place: Place, name: str) -> None:
        entry = self._entries.get(place, {}).pop(name, None)
        if entry is None:
            return
        self.held -= entry.size
        if not self._entries[place]:
            del self._entries[place]
        for label in INDEXED:
            if (value := entry.labels.get(label)) is not None:
                self._names.remove((place, label), value, name)

    def _drop(self, place: Place, name: str, began: float) -> bool:
        """One that a read which began at ``began`` has not found, unless it was heard of since."""
        entry = self._entry(place, name)
        if entry is None or entry.since > began:
            return False
        self._bury(entry.uid, entry.version, began)
        self._remove(place, name)
        return True

    def _bury(self, uid: str, version: int, time: float) -> None:
        self._gone[uid] = version, time
        self._gone.move_to_end(uid)
        while self._gone and next(iter(self._gone.values()))[1] < self._clock() - GONE_SECONDS:
            self._gone.popitem(last=False)

    def _is_gone(self, uid: str, version: int, began: float | None) -> bool:
        """Whether an object is known to be gone, of which an event tells late, or a read that began before."""
        if uid not in self._gone:
            return False
        last, time = self._gone[uid]
        return version <= last or (began is not None and began <= time)

    def _entry(self, place: Place, name: str) -> _Entry | None:
        return self._entries.get(place, {}).get(name)

    def _selected(self, place: Place, terms: Sequence[tuple[str, str]]) -> Iterator[str]:
        indexed = next(((key, value) for key, value in terms if key in INDEXED and value), None)
        entries = self._entries.get(place, {})
        for name in tuple(self._names.get((place, indexed[0]), indexed[1]) if indexed else entries):
            if _matches(entries[name].labels, terms):
                yield name

    def _knows(self, place: Place) -> bool:
        return (place[0], "") in self._listed or place in self._listed

    def _places(self, scope: Place) -> list[Place]:
        return [place for place in self._entries if place[0] == scope[0] and scope[1] in ("", place[1])]

    def _forget(self, scope: Place) -> None:
        self._listed.discard(scope)
        for place in self._places(scope):
            for name in tuple(self._entries[place]):
                self._remove(place, name)


def _outdates(version: int, entry: _Entry, began: float | None) -> bool:
    """Whether a state of ``version`` says more than ``entry``. A read that began after the entry was made does,
    whatever its version: where etcd was restored from a backup, versions have gone back."""
    return version > entry.version or version == 0 or (began is not None and began >= entry.since)


def _terms(selector: str) -> list[tuple[str, str]]:
    """Of a label selector: keys with their values, an empty one where the key has to be there."""
    return [(key, value) for term in selector.split(",") if term for key, _, value in [term.partition("=")]]


def _matches(found: Mapping[str, str], terms: Sequence[tuple[str, str]]) -> bool:
    return all(key in found and value in ("", found[key]) for key, value in terms)


def _selected_by(resource: Resource, raw: Raw) -> Mapping[str, str]:
    found = {sys.intern(key): sys.intern(value) for key, value in labels_of(raw).items() if key in SELECTED}
    if resource == CONFIG_MAP and labels.MODEL in found and not section(raw, "metadata").get("ownerReferences"):
        found[LEFT] = found[labels.MODEL]
    server = block(raw.get("status"), "server") if resource == OPTIMISED_MODEL else {}
    answer = f"{server.get('key')}/{server.get('architecture')}"
    return {**found, ANSWER: answer} if server.get("runtime") and len(answer) <= LABEL_LENGTH else found


def _namespace_of(raw: Raw) -> str:
    return str(section(raw, "metadata").get("namespace") or "")


def _version_of(raw: Raw) -> int:
    """0 for one that is no number: which of two states is later is unknown then, and the object is not kept."""
    version = str(section(raw, "metadata").get("resourceVersion") or "")
    return int(version) if version.isdecimal() else 0
