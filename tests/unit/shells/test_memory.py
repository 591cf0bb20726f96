"""What the operator remembers: kept up by events in any order, by its own writes and by reads; it never goes back."""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from enginewright.clients.errors import NotFoundError, RefusedError, TransientError
from enginewright.clients.kube import KnownPages, KubeClient, Object
from enginewright.clients.resources import (
    CLAIM,
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    LEASE,
    OPTIMISED_MODEL,
    POD,
    SERVICE,
    Resource,
)
from enginewright.core import labels
from enginewright.core.internal import stored
from enginewright.core.manifests import record_name
from enginewright.core.observed import EngineRecord, Version
from enginewright.observe.memory import ENTRY_BYTES, GONE_SECONDS, Memory
from enginewright.observe.parsed import Parsed
from enginewright.observe.reads import Confirming, Fresh, Remembered, Trail
from enginewright.observe.records import RecordReader

MINE = f"{labels.MODEL}=m"


def raw(name: str, version: int | str, *, uid: str = "", namespace: str = "prod", model: str = "m",
        **fields: Any) -> Object:
    metadata = {"name": name, "namespace": namespace, "uid": uid or f"u-{name}", "resourceVersion": str(version),
                "labels": {labels.MODEL: model}, "managedFields": [{"manager": "kubectl"}]}
    return {"metadata": metadata, **fields}


class Kube:
    """A cluster with one kind of object, and a count of what it was asked."""

    def __init__(self, *objects: Object) -> None:
        self.objects = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in objects}
        self.asked: list[str] = []
        self.parsed = 0
        self.refused: set[str] = set()
        self.kind: Resource = POD

    async def gather(self, resource: Resource, namespace: str | None, keep: Callable[[Object], Any], *,
                     labels: str = "", metadata: bool = False, known: KnownPages | None = None) -> list[Any]:
        self.asked.append(f"{'metadata' if metadata else 'list'} {resource.plural}")
        if namespace in self.refused:
            raise RefusedError("no", status=403)
        found = [{"metadata": one["metadata"]} if metadata else one for one in self._all(resource, namespace)]
        return list(map(keep, found if known is None else self._unknown(found, known)))

    def _unknown(self, found: list[Object], known: KnownPages) -> list[Object]:
        """Of pages of two objects."""
        told = []
        for number, begin in enumerate(range(0, max(1, len(found)), 2)):
            page = found[begin:begin + 2]
            content = json.dumps(page).encode()
            if not known.as_before(number, content):
                known.parsed(number, content, page)
                told += page
        self.parsed += len(told)
        return told

    async def list_all(self, resource: Resource, namespace: str, *, labels: str = "") -> list[Object]:
        self.asked.append(f"list {resource.plural}")
        return self._all(resource, namespace)

    async def get_metadata(self, resource: Resource, namespace: str, name: str) -> Object:
        found = await self.get(resource, namespace, name)
        self.asked[-1] = f"metadata of {name}"
        return {"metadata": found["metadata"]}

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        self.asked.append(f"get {resource.plural}")
        if (namespace, name) not in self.objects:
            raise NotFoundError("gone", status=404)
        return self.objects[namespace, name]

    def _all(self, resource: Resource, namespace: str | None) -> list[Object]:
        there = ((where, self.objects[where, name]) for where, name in sorted(self.objects, key="/".join))
        return [json.loads(json.dumps(one)) for where, one in there
                if resource == self.kind and namespace in (None, where)]


def remembering(kube: Kube, *namespaces: str, most: int = 1 << 20) -> Memory:
    """That has listed everything once."""
    memory = Memory(cast(KubeClient, kube), namespaces, most=most)
    asyncio.run(memory.heal())
    kube.asked.clear()
    return memory


def of_ours(found: Object) -> Object:
    found["metadata"]["labels"][labels.MANAGED_BY] = labels.PRODUCT
    return found


def names(memory: Memory, resource: Resource = POD, selector: str = MINE) -> list[str] | None:
    found = memory.select(resource, "prod", selector)
    return None if found is None else [one["metadata"]["name"] for one in found]


def test_before_it_has_listed_a_kind_it_knows_nothing() -> None:
    memory = Memory(cast(KubeClient, Kube()))
    memory.saw(POD, None, raw("a", 1))
    assert names(memory) is None
    assert memory.one(POD, "prod", "b") is None
    assert memory.version(CONFIG_MAP, "prod", "b") is None


def test_it_selects_as_the_apiserver_does() -> None:
    memory = remembering(Kube())
    step, other = labels.STEP, {labels.MODEL: "other", labels.STEP: "build"}
    for name, found in (("a", {labels.MODEL: "m", step: "build"}), ("b", {labels.MODEL: "m"}), ("c", other)):
        one = raw(name, 5, uid=name)
        one["metadata"]["labels"] = found
        memory.saw(POD, "ADDED", one)
    cases = {MINE: ["a", "b"], f"{MINE},{step}": ["a"], f"{step}=build": ["a", "c"], f"{MINE},{step}=gc": [],
             "": ["a", "b", "c"]}
    assert {selector: names(memory, selector=selector) for selector in cases} == cases
    assert names(memory, selector="app=web") is None, "of other labels it knows nothing"
    assert memory.select(POD, "other", MINE) == []


def test_a_reader_cannot_change_what_is_remembered() -> None:
    memory = remembering(Kube(raw("a", 1, status={"phase": "Running"})))
    (found,) = memory.select(POD, "prod", MINE) or [{}]
    found["status"]["phase"] = "Failed"
    (again,) = memory.one(POD, "prod", "a") or [{}]
    assert again["status"] == {"phase": "Running"}
    assert "managedFields" not in again["metadata"]


def test_of_deployments_it_keeps_who_wrote_what() -> None:
    kube = Kube(raw("a", 1))
    kube.kind = DEPLOYMENT
    (found,) = remembering(kube).select(DEPLOYMENT, "prod", MINE) or [{}]
    assert found["metadata"]["managedFields"] == [{"manager": "kubectl"}]


def test_of_claims_it_keeps_what_passes_use() -> None:
    memory = remembering(Kube())
    memory.saw(CLAIM, "ADDED", raw("a", 7, spec={"volumeName": "x"}, status={"phase": "Bound", "capacity": {}}))
    (found,) = memory.one(CLAIM, "prod", "a") or [{}]
    assert found["status"] == {"phase": "Bound"}
    assert "spec" not in found


def test_an_older_state_never_replaces_a_newer_one() -> None:
    memory = remembering(Kube())
    memory.wrote(SERVICE, "prod", "a", raw("a", 9, spec={"new": True}))
    memory.saw(SERVICE, "MODIFIED", raw("a", 8, spec={"new": False}))
    (found,) = memory.one(SERVICE, "prod", "a") or [{}]
    assert found["spec"] == {"new": True}


def test_the_deletion_of_a_namesake_that_was_there_before_removes_nothing() -> None:
    memory = remembering(Kube())
    memory.saw(JOB, "ADDED", raw("a", 3, uid="new"))
    memory.saw(JOB, "DELETED", raw("a", 2, uid="old"))
    assert names(memory, JOB) == ["a"]
    memory.saw(JOB, "DELETED", raw("a", 4, uid="new"))
    assert names(memory, JOB) == []


def test_after_a_write_without_an_answer_it_asks_until_an_event_has_come() -> None:
    memory = remembering(Kube(raw("a", 1)))
    memory.wrote(POD, "prod", "a", None)
    assert names(memory) is None
    memory.saw(POD, "MODIFIED", raw("a", 1))
    assert names(memory) is None, "an event from before the write says nothing of it"
    memory.saw(POD, "MODIFIED", raw("a", 2))
    assert names(memory) == ["a"]


def test_a_read_that_began_after_the_write_settles_it_and_one_that_began_before_does_not() -> None:
    now = [1.0]
    memory = Memory(cast(KubeClient, Kube(raw("a", 1))), clock=lambda: now[0])
    asyncio.run(memory.heal())
    now[0] = 3.0
    memory.wrote(POD, "prod", "a", None)
    memory.read(POD, "prod", MINE, [raw("a", 1)], began=2.0)
    assert names(memory) is None
    memory.read(POD, "prod", MINE, [raw("a", 1)], began=4.0)
    assert names(memory) == ["a"]


def test_what_a_read_did_not_find_is_gone_unless_it_came_since() -> None:
    now = [1.0]
    memory = Memory(cast(KubeClient, Kube(raw("a", 1))), clock=lambda: now[0])
    asyncio.run(memory.heal())
    now[0] = 5.0
    memory.saw(POD, "ADDED", raw("b", 2))
    memory.read(POD, "prod", MINE, [], began=4.0)
    assert names(memory) == ["b"]


def test_the_end_of_an_object_is_known_to_reads_that_began_before_it() -> None:
    now = [1.0]
    memory = Memory(cast(KubeClient, Kube(raw("a", 1))), clock=lambda: now[0])
    asyncio.run(memory.heal())
    now[0] = 5.0
    memory.saw(POD, "DELETED", raw("a", 2))
    memory.read(POD, "prod", MINE, [raw("a", 1)], began=4.0)
    memory.saw(POD, "MODIFIED", raw("a", 1))
    assert names(memory) == []
    memory.saw(POD, "ADDED", raw("a", 3, uid="made again"))
    assert names(memory) == ["a"]


def test_an_end_that_comes_while_a_kind_is_listed_for_the_first_time_is_known() -> None:
    class Slow(Kube):
        async def gather(self, *what: Any, **how: Any) -> list[Any]:
            if what[0] == POD:
                memory.saw(POD, "DELETED", raw("a", 2))
            return await super().gather(*what, **how)

    memory = Memory(cast(KubeClient, Slow(raw("a", 1))))
    asyncio.run(memory.heal())
    assert names(memory) == []


def test_ends_are_not_remembered_for_ever() -> None:
    now = [0.0]
    memory = Memory(cast(KubeClient, Kube()), clock=lambda: now[0])
    for number in range(1000):
        now[0] += 1.0
        memory.saw(POD, "DELETED", raw("a", number + 1, uid=f"u{number}"))
    assert len(memory._gone) <= GONE_SECONDS + 1


def test_after_a_scale_events_from_before_it_say_nothing() -> None:
    kube = Kube(raw("a", 10))
    kube.kind = DEPLOYMENT
    memory = remembering(kube)
    memory.wrote(DEPLOYMENT, "prod", "a", None, "12")
    memory.saw(DEPLOYMENT, "MODIFIED", raw("a", 11))
    assert names(memory, DEPLOYMENT) is None
    memory.saw(DEPLOYMENT, "MODIFIED", raw("a", 12))
    assert names(memory, DEPLOYMENT) == ["a"]


@pytest.mark.parametrize("heals", [True, False], ids=["a comparison", "a read"])
def test_where_etcd_was_restored_from_a_backup_the_older_versions_count(heals: bool) -> None:
    kube = Kube(raw("a", 100, spec={"of": "the backup"}))
    memory = remembering(kube)
    memory.saw(POD, "MODIFIED", raw("a", 200, spec={"of": "later"}))
    reads = Fresh(cast(KubeClient, kube), memory)
    if heals:
        asyncio.run(memory.heal())
        assert names(memory) is None
    asyncio.run(reads.list_all(POD, "prod", labels=MINE))
    (found,) = memory.select(POD, "prod", MINE) or [{}]
    assert found["spec"] == {"of": "the backup"}


def test_a_kind_that_cannot_be_listed_keeps_no_other_from_being_compared() -> None:
    class Partly(Kube):
        async def gather(self, *what: Any, **how: Any) -> list[Any]:
            if what[0] == JOB:
                raise TransientError("no answer")
            return await super().gather(*what, **how)

    memory = Memory(cast(KubeClient, Partly(raw("a", 1))))
    with pytest.raises(TransientError):
        asyncio.run(memory.heal())
    assert names(memory) == ["a"]
    assert names(memory, JOB) is None


def test_labels_that_nothing_selects_by_are_not_kept() -> None:
    memory = remembering(Kube())
    one = raw("a", 1)
    one["metadata"]["labels"] |= {f"label-{number}": "x" for number in range(8_000)}
    memory.saw(CLAIM, "ADDED", one)
    (entry,) = memory._entries[CLAIM, "prod"].values()
    assert dict(entry.labels) == {labels.MODEL: "m"}


def test_a_kind_with_more_objects_than_there_is_room_for_is_read_from_the_apiserver() -> None:
    kube = Kube(*(raw(f"a{number}", 1) for number in range(100)))
    memory = remembering(kube, most=20 * ENTRY_BYTES)
    assert names(memory) is None
    assert memory.held == 0
    memory.saw(POD, "MODIFIED", raw("a1", 2))
    assert memory.count() == 0
    assert names(memory, JOB) == [], "of others it knows as before"
    kube.objects = {("prod", "a1"): raw("a1", 2)}
    asyncio.run(memory.heal())
    assert names(memory) == ["a1"]


def test_what_no_watch_tells_of_is_not_kept() -> None:
    """A Job of the collector has no model: no event would tell of its end."""
    memory = remembering(Kube())
    one = raw("collector", 1)
    del one["metadata"]["labels"][labels.MODEL]
    memory.wrote(JOB, "prod", "collector", one)
    assert memory.count() == 0


def test_looking_up_what_is_not_there_leaves_nothing_behind() -> None:
    memory = remembering(Kube())
    for number in range(100):
        memory.one(POD, f"n{number}", "a")
        memory.select(POD, f"n{number}", MINE)
        memory.version(CONFIG_MAP, f"n{number}", "a")
        memory.gone(POD, f"n{number}", "a", 0.0)
        memory.wrote(POD, f"n{number}", "a", None)
        memory.saw(POD, "ADDED", raw("a", 1, uid=f"u{number}", namespace=f"n{number}"))
        memory.saw(POD, "DELETED", raw("a", 2, uid=f"u{number}", namespace=f"n{number}"))
    assert (memory._entries, memory._names._scopes, memory.held) == ({}, {}, 0)


def test_objects_that_are_too_large_and_those_without_room_are_read_each_time() -> None:
    noise = random.Random(1).randbytes(200_000).hex()
    for one, most in ((raw("a", 1, data=noise), 64 << 20), (raw("a", 1), 10)):
        memory = remembering(Kube(one), most=most)
        assert names(memory) is None
        assert memory.one(POD, "prod", "a") is None
        assert memory.held <= most


def test_what_is_dropped_makes_room() -> None:
    memory = remembering(Kube())
    memory.saw(POD, "ADDED", raw("a", 1))
    assert memory.held > 0
    memory.saw(POD, "MODIFIED", raw("a", 2, spec={"longer": "x" * 100}))
    memory.saw(POD, "DELETED", raw("a", 3))
    assert (memory.held, memory.count()) == (0, 0)


def test_versions_that_are_no_numbers_are_never_trusted() -> None:
    memory = remembering(Kube(raw("a", "abc")))
    assert names(memory) is None


def test_of_config_maps_it_knows_the_version_alone() -> None:
    memory = remembering(Kube())
    memory.saw(CONFIG_MAP, "ADDED", of_ours(raw("a", 7, data={"outcome.json": "x" * 10_000})))
    assert memory.version(CONFIG_MAP, "prod", "a") == ("u-a", "7")
    assert memory.version(CONFIG_MAP, "prod", "b") == ("", "")
    assert memory.held == ENTRY_BYTES


def test_a_config_map_that_has_lost_its_owner_is_known_by_its_model() -> None:
    memory = remembering(Kube())
    owned = of_ours(raw("a", 7))
    owned["metadata"]["ownerReferences"] = [{"uid": "u"}]
    memory.saw(CONFIG_MAP, "ADDED", owned)
    assert not memory.left("prod", "m")
    memory.saw(CONFIG_MAP, "MODIFIED", of_ours(raw("a", 8)))
    assert memory.left("prod", "m")
    assert not memory.left("prod", "other")
    assert not memory.left("dev", "m")
    owned["metadata"]["resourceVersion"] = "9"
    memory.saw(CONFIG_MAP, "MODIFIED", owned)
    assert not memory.left("prod", "m")


def test_healing_finds_what_no_event_told() -> None:
    kube = Kube(raw("a", 1), raw("b", 1), raw("c", 1))
    unseen: list[str] = []
    memory = Memory(cast(KubeClient, kube), unseen=lambda _, found: unseen.append(found["metadata"]["name"]))
    asyncio.run(memory.heal())
    kube.asked.clear()
    assert unseen == []
    kube.objects = {("prod", "b"): raw("b", 5), ("prod", "c"): raw("c", 1), ("prod", "d"): raw("d", 6, uid="d")}
    assert asyncio.run(memory.heal()) == 1
    assert sorted(unseen) == ["a", "b", "d"]
    assert {one for one in kube.asked if "pods" in one} == {"metadata pods"}
    assert names(memory) is None, "of what has changed it knows no more than that"
    assert (memory.one(POD, "prod", "a"), memory.one(POD, "prod", "b")) == ([], None)
    assert asyncio.run(memory.heal()) == 0


def test_a_namespace_that_refuses_is_read_from_the_apiserver_and_others_are_remembered() -> None:
    kube = Kube(raw("a", 1))
    kube.refused = {"closed"}
    memory = remembering(kube, "prod", "closed")
    assert names(memory) == ["a"]
    assert memory.select(POD, "closed", MINE) is None
    kube.refused = {"prod"}
    asyncio.run(memory.heal())
    assert names(memory) is None
    assert memory.count() == 0


def test_an_apiserver_that_is_away_is_told() -> None:
    class Away(Kube):
        async def gather(self, *_: Any, **__: Any) -> list[Any]:
            raise TransientError("no answer")

    with pytest.raises(TransientError):
        remembering(Away())


def test_a_remembered_read_asks_for_nothing_and_a_fresh_one_is_remembered() -> None:
    kube = Kube(raw("a", 1))
    memory = remembering(kube)
    fresh = Fresh(cast(KubeClient, kube), memory)
    reads = Remembered(memory, fresh)

    async def look() -> None:
        assert [one["metadata"]["name"] for one in await reads.list_all(POD, "prod", labels=MINE)] == ["a"]
        assert (await reads.get(POD, "prod", "a"))["metadata"]["resourceVersion"] == "1"
        with pytest.raises(NotFoundError):
            await reads.get(POD, "prod", "b")
        assert kube.asked == []
        kube.objects["prod", "b"] = raw("b", 2)
        assert len(await fresh.list_all(POD, "prod", labels=MINE)) == 2
        assert (await reads.get(POD, "prod", "b"))["metadata"]["resourceVersion"] == "2"
        del kube.objects["prod", "b"]
        with pytest.raises(NotFoundError):
            await fresh.get(POD, "prod", "b")
        assert len(await reads.list_all(POD, "prod", labels=MINE)) == 1
        assert kube.asked == ["list pods", "get pods"]

    asyncio.run(look())


class Looks:
    """Looks at memory one after another, as a pass makes them."""

    def __init__(self, kube: Kube) -> None:
        self.kube, self.memory = kube, remembering(kube)
        self.fresh = Fresh(cast(KubeClient, kube), self.memory)
        self.trail: Trail | None = None

    def look(self) -> list[str]:
        """Names and versions that it gives."""
        self.trail = Trail(self.trail)
        found = asyncio.run(Remembered(self.memory, self.fresh, self.trail).list_all(POD, "prod", labels=MINE))
        return [f"{one['metadata']['name']}{one['metadata']['resourceVersion']}" for one in found]

    def confirmed(self) -> bool:
        assert self.trail is not None
        self.kube.asked.clear()
        confirming = Confirming(cast(KubeClient, self.kube), self.memory, self.fresh)
        return asyncio.run(confirming.all_as_seen(self.trail))


def test_what_the_apiserver_has_as_it_was_seen_is_confirmed_by_name() -> None:
    looks = Looks(Kube(raw("a", 1), raw("b", 2)))
    assert looks.look() == ["a1", "b2"]
    assert looks.confirmed()
    assert sorted(looks.kube.asked) == ["metadata of a", "metadata of b"]


@pytest.mark.parametrize(("now", "seen"), [
    ([raw("a", 1), raw("b", 3)], ["a1", "b3"]), ([raw("a", 1)], ["a1"]),
    ([raw("a", 1), raw("b", 3, uid="another")], ["a1", "b3"]),
], ids=["changed", "gone", "made again"])
def test_the_look_after_one_that_was_not_confirmed_sees_what_there_is(now: list[Object], seen: list[str]) -> None:
    looks = Looks(Kube(raw("a", 1), raw("b", 2)))
    looks.look()
    looks.kube.objects = {("prod", one["metadata"]["name"]): one for one in now}
    assert not looks.confirmed()
    assert looks.look() == seen
    assert looks.confirmed()
    assert looks.kube.asked == [], "the pass has asked for all of it"


def test_what_only_the_second_look_saw_is_asked_for_too() -> None:
    looks = Looks(Kube(raw("a", 1)))
    looks.look()
    assert looks.confirmed()
    looks.memory.saw(POD, "ADDED", raw("b", 2))
    assert looks.look() == ["a1", "b2"]
    assert not looks.confirmed()
    assert looks.look() == ["a1"]


def test_without_the_right_to_ask_by_name_nothing_is_confirmed() -> None:
    class Refusing(Kube):
        async def get_metadata(self, *_: Any) -> Object:
            raise RefusedError("forbidden", status=403)

    looks = Looks(Refusing(raw("a", 1)))
    looks.look()
    assert not looks.confirmed()


def test_a_record_that_is_remembered_is_on_the_trail() -> None:
    fingerprint, store = "f" * 64, "pvc://engines"
    name, kube = record_name(fingerprint, store), Kube()
    memory = remembering(kube)
    memory.saw(CONFIG_MAP, "ADDED", of_ours(raw(name, 7)))
    reader, trail = RecordReader(cast(KubeClient, kube), lambda _: None, memory), Trail()
    reader._parsed = Parsed(lambda _: cast(EngineRecord, SimpleNamespace(fingerprint=fingerprint, store_uri=store)),
                            lambda _: None)
    reader._parsed.of(raw(name, 7))
    assert set(asyncio.run(reader.records("prod", store, [fingerprint], trail))) == {fingerprint}
    assert trail.seen == {(CONFIG_MAP, "prod", name): Version(f"u-{name}", "7")}


def test_a_record_that_a_fresh_look_does_not_find_is_not_remembered_either() -> None:
    class WithoutRecords(Kube):
        async def find(self, *_: Any, **__: Any) -> None:
            return None

    fingerprint, store = "f" * 64, "pvc://engines"
    kube = WithoutRecords()
    memory = remembering(kube)
    memory.saw(CONFIG_MAP, "ADDED", of_ours(raw(record_name(fingerprint, store), 7)))
    reader = RecordReader(cast(KubeClient, kube), lambda _: None, memory)
    assert asyncio.run(reader.records("prod", store, [fingerprint])) == {}
    assert memory.version(CONFIG_MAP, "prod", record_name(fingerprint, store)) == ("", "")


def test_kinds_that_are_not_watched_are_read_from_the_apiserver() -> None:
    kube = Kube()
    memory = remembering(kube)
    other = Resource("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates")
    memory.wrote(other, "prod", "a", raw("a", 3))
    memory.read(other, "prod", "", [raw("a", 3)], began=0.0)
    memory.confirm(other, raw("a", 3), began=0.0)
    asyncio.run(Remembered(memory, Fresh(cast(KubeClient, kube), memory)).list_all(other, "prod"))
    assert kube.asked == ["list resourceclaimtemplates"]
    assert memory.count() == 0


NAMES = st.sampled_from(["a", "b", "c"])


class Cluster(RuleBasedStateMachine):
    """Objects come, change and go. The events of one object come in their order, those of several in any order; some
    are lost until the next healing. The operator writes and reads in between."""

    def __init__(self) -> None:
        super().__init__()
        self.kube = Kube()
        self.kube.kind = LEASE
        self.version = 1
        self.clock = 0.0
        self.events: defaultdict[str, deque[tuple[str, Object]]] = defaultdict(deque)
        self.memory = Memory(cast(KubeClient, self.kube), clock=self._now)
        asyncio.run(self.memory.heal())
        self.seen: dict[str, int] = {}
        self.lost = False
        self.under_way: list[tuple[float, list[Object]]] = []

    def _now(self) -> float:
        self.clock += 1.0
        return self.clock

    def _change(self, name: str, *, deletes: bool = False) -> Object:
        self.version += 1
        before = self.kube.objects.get(("prod", name))
        uid = before["metadata"]["uid"] if before else f"u{self.version}"
        one = raw(name, self.version, uid=uid)
        one["metadata"]["labels"][labels.BUILDS] = "true"
        if deletes:
            del self.kube.objects["prod", name]
        else:
            self.kube.objects["prod", name] = one
        kind = "DELETED" if deletes else "MODIFIED" if before else "ADDED"
        self.events[uid].append((kind, one))
        return one

    @rule(name=NAMES)
    def someone_writes(self, name: str) -> None:
        self._change(name)

    @rule(name=NAMES)
    def the_operator_writes(self, name: str) -> None:
        self.memory.wrote(LEASE, "prod", name, self._change(name))

    @rule(name=NAMES)
    def the_operator_writes_without_an_answer(self, name: str) -> None:
        if ("prod", name) in self.kube.objects:
            self._change(name)
            self.memory.wrote(LEASE, "prod", name, None)

    @rule(name=NAMES, ours=st.booleans())
    def one_goes(self, name: str, ours: bool) -> None:
        if ("prod", name) in self.kube.objects:
            self._change(name, deletes=True)
            if ours:
                self.memory.wrote(LEASE, "prod", name, None)

    @precondition(lambda self: any(self.events.values()))
    @rule(data=st.data())
    def an_event_comes(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(uid for uid, waiting in self.events.items() if waiting)))
        self.memory.saw(LEASE, *self.events[uid].popleft())

    @precondition(lambda self: any(self.events.values()))
    @rule(data=st.data())
    def the_events_of_an_object_are_lost(self, data: st.DataObject) -> None:
        self.events[data.draw(st.sampled_from(sorted(uid for uid, waiting in self.events.items() if waiting)))].clear()
        self.lost = True

    @rule()
    def a_pass_reads(self) -> None:
        asyncio.run(Fresh(cast(KubeClient, self.kube), self.memory).list_all(LEASE, "prod", labels=MINE))
        self._is_right()

    @rule()
    def a_read_is_answered_and_its_answer_is_late(self) -> None:
        began = self.memory.now()
        self.under_way.append((began, asyncio.run(self.kube.list_all(LEASE, "prod"))))

    @precondition(lambda self: self.under_way)
    @rule()
    def a_late_answer_comes(self) -> None:
        began, found = self.under_way.pop(0)
        self.memory.read(LEASE, "prod", MINE, found, began)

    @rule(name=NAMES)
    def a_pass_reads_one(self, name: str) -> None:
        reads = Fresh(cast(KubeClient, self.kube), self.memory)
        there = ("prod", name) in self.kube.objects
        if there:
            asyncio.run(reads.get(LEASE, "prod", name))
        else:
            with pytest.raises(NotFoundError):
                asyncio.run(reads.get(LEASE, "prod", name))
        assert bool(self.memory.one(LEASE, "prod", name)) == there

    @rule()
    def all_events_come(self) -> None:
        while self.under_way:
            self.a_late_answer_comes()
        for waiting in self.events.values():
            while waiting:
                self.memory.saw(LEASE, *waiting.popleft())
        if self.lost:
            asyncio.run(self.memory.heal())
            self.lost = False
        self._is_right()

    @invariant()
    def it_never_goes_back(self) -> None:
        for (_, name), one in self.kube.objects.items():
            found = self.memory.one(LEASE, "prod", name)
            version = int(found[0]["metadata"]["resourceVersion"]) if found else 0
            assert version <= int(one["metadata"]["resourceVersion"])
            if version:
                assert version >= self.seen.get(name, 0)
                self.seen[name] = version

    def _is_right(self) -> None:
        """What it tells is what there is; it may also not know."""
        found = self.memory.select(LEASE, "prod", MINE)
        if found is not None:
            there = {name: one["metadata"]["resourceVersion"] for (_, name), one in self.kube.objects.items()}
            assert {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in found} == there


TestCluster = Cluster.TestCase


def told(name: str, version: int, *, key: str = "k", runtime: bool = True, namespace: str = "prod") -> Object:
    server = {"key": key, "architecture": "x86_64", **({"runtime": {"backends": ["python"]}} if runtime else {})}
    return raw(name, version, namespace=namespace, status=stored({"server": server}))


def test_an_answer_is_found_by_what_was_asked_and_of_which_architecture() -> None:
    memory = Memory(cast(KubeClient, Kube()))
    for one in (told("b", 3), told("a", 4), told("c", 5, key="other"), told("d", 6, runtime=False),
                told("e", 7, namespace="elsewhere")):
        memory.saw(OPTIMISED_MODEL, "ADDED", one)

    def found(key: str = "k", machine: str = "x86_64") -> str | None:
        answer = memory.answered("prod", key, machine)
        return answer["metadata"]["name"] if answer else None

    assert found() in ("a", "b")
    assert (found("other"), found("never"), found(machine="aarch64")) == ("c", None, None)
    memory.saw(OPTIMISED_MODEL, "MODIFIED", told("a", 8, runtime=False))
    assert found() == "b"
    memory.wrote(OPTIMISED_MODEL, "prod", "b", None, "9")  # it may have changed
    assert found() is None
    memory.saw(OPTIMISED_MODEL, "MODIFIED", told("b", 9))
    memory.saw(OPTIMISED_MODEL, "DELETED", told("b", 10))
    assert found() is None


def test_an_answer_under_a_key_of_any_length_takes_no_room_in_the_index() -> None:
    memory = Memory(cast(KubeClient, Kube()))
    memory.saw(OPTIMISED_MODEL, "ADDED", told("a", 1, key="k" * 5000))
    assert memory.answered("prod", "k" * 5000, "x86_64") is None


def compared(memory: Memory, kube: Kube) -> int:
    """How many objects a comparison has parsed."""
    kube.parsed = 0
    asyncio.run(memory.heal())
    return kube.parsed


def test_a_comparison_parses_no_page_that_is_as_it_was_and_is_remembered_so() -> None:
    kube = Kube(*(raw(name, number) for number, name in enumerate("abcdefg", 1)))
    memory = remembering(kube)
    assert compared(memory, kube) == 7, "the first comparison knows no page"
    assert compared(memory, kube) == 0
    kube.objects["prod", "d"] = raw("d", 20)
    assert compared(memory, kube) == 2
    assert memory.one(POD, "prod", "d") is None, "it has changed unseen"
    assert compared(memory, kube) == 2, "and has to be asked for still"
    memory.confirm(POD, raw("d", 20), began=memory.now())
    assert compared(memory, kube) == 0


def test_a_page_is_parsed_where_memory_has_something_else() -> None:
    """An object that the cluster does not have any more, an older one, and one that memory has never heard of."""
    kube = Kube(*(raw(name, number) for number, name in enumerate("abcdef", 1)))
    memory = remembering(kube)
    compared(memory, kube)
    memory.saw(POD, "ADDED", raw("bb", 9))
    memory._remove((POD, "prod"), "f")
    assert compared(memory, kube) == 4
    assert memory.one(POD, "prod", "bb") == []
    assert memory.one(POD, "prod", "f") is None
    assert [memory.one(POD, "prod", name) != [] for name in "abcde"] == [True] * 5


def test_what_has_vanished_is_found_where_the_other_pages_are_as_they_were() -> None:
    kube = Kube(*(raw(name, number) for number, name in enumerate("abcdef", 1)))
    memory = remembering(kube)
    compared(memory, kube)
    del kube.objects["prod", "f"]
    del kube.objects["prod", "e"]
    assert compared(memory, kube) == 0
    assert memory.one(POD, "prod", "e") == memory.one(POD, "prod", "f") == []
    assert memory.one(POD, "prod", "d") != []


def test_objects_are_compared_in_the_order_in_which_the_apiserver_lists_them() -> None:
    """By namespace and name as one text: ``a-b/x`` comes before ``a/x``."""
    kube = Kube(*(raw(name, number, namespace=space) for number, (space, name) in enumerate(
        [("a", "x"), ("a", "x-y"), ("a-b", "x"), ("a", "x.y"), ("a0", "x")], 1)))
    memory = remembering(kube)
    compared(memory, kube)
    assert compared(memory, kube) == 0
