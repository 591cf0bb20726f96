"""Engines that nobody uses go, late and in steps; what anybody refers to stays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginewright.core import labels
from enginewright.core.collect import ENGINES_AT_ONCE, Access, CollectorJob, EngineReferences, collect
from enginewright.core.config import OperatorConfig
from enginewright.core.observed import RecordMark
from enginewright.core.plan import Action, Create, Delete, MarkRecord
from support.cluster import START, Cluster, built, described, resolved

DAY = timedelta(days=1)
CONFIG = OperatorConfig()
STORE = "pvc://store"
A, B = "a" * 64, "b" * 64


def record(fingerprint: str = A, *, since: timedelta | None = None, store: str = STORE) -> RecordMark:
    """``since`` before START."""
    return RecordMark(name=f"engine-{fingerprint[:4]}", version="1", fingerprint=fingerprint, store_uri=store,
                      claim_uid="c", unreferenced=None if since is None else START - since)


def job(*engines: str, live: bool = True, succeeded: bool = False, store: str = STORE) -> CollectorJob:
    return CollectorJob(name="gc", uid="u", store_uri=store, engines=engines, live=live, succeeded=succeeded)


def seen(*records: RecordMark, **fields: Any) -> EngineReferences:
    return EngineReferences(**{"namespace": "prod", "now": START, "records": records, **fields})


class Fingerprints(frozenset[str]):
    """Of thousands of objects: to copy them for each record would take seconds."""

    def __or__(self, other: object) -> Any:
        raise AssertionError("all of them are copied")


@pytest.mark.parametrize(("store", "wanted"), [(STORE, [True, False]), ("s3://engines", [True, True])])
def test_a_record_is_looked_up_among_what_is_referred_to(store: str, wanted: list[bool]) -> None:
    here = seen(referenced=Fingerprints({A}), everywhere=Fingerprints({B}))
    assert [here.wanted(record(one, store=store)) for one in (A, B)] == wanted


def told(actions: tuple[Action, ...]) -> list[str]:
    found = []
    for action in actions:
        match action:
            case MarkRecord(name=name, since=since):
                found.append(f"{'mark' if since else 'clear'} {name}")
            case Create(manifest=manifest):
                found.append("remove " + manifest["metadata"]["annotations"][labels.ENGINES].replace(A, "A"))
            case Delete(kind=kind, name=name):
                found.append(f"delete {kind} {name}")
    return found


WANTED = frozenset({A})


def test_engines_in_a_bucket_are_removed_as_who_built_them_one_after_the_other() -> None:
    """Neither is in the way of the other for good, whatever becomes of its Jobs."""
    def in_bucket(fingerprint: str, secret: str) -> RecordMark:
        mark = record(fingerprint, since=9 * DAY, store="s3://engines")
        return replace(mark, access=(("secret", secret),), claim_uid="")

    removed = set()
    for round in range(20):
        now = START + round * timedelta(seconds=1200)
        (made,) = collect(seen(in_bucket(A, "a"), in_bucket(B, "b"), now=now), CONFIG)
        assert isinstance(made, Create)
        assert "ownerReferences" not in made.manifest["metadata"]
        (container,) = made.manifest["spec"]["template"]["spec"]["containers"]
        removed.add((made.manifest["metadata"]["annotations"][labels.ENGINES],
                     container["envFrom"][0]["secretRef"]["name"]))
    assert removed == {(A, "a"), (B, "b")}


BUCKET = "s3://engines"
OLD, NEW, OTHER, CLOUD = (("secret", "old"),), (("secret", "new"),), (("secret", "other"),), (("serviceAccount", "a"),)


@pytest.mark.parametrize(("asked", "expected"), [
    ({}, OLD),
    ({"s3://engines/team": {NEW}}, OLD),
    ({BUCKET: {NEW}}, NEW),
    ({BUCKET: {NEW, OLD}}, OLD),
    ({BUCKET: {OTHER, NEW}}, NEW),
    ({BUCKET: {(), CLOUD, OTHER}}, OTHER),
    ({BUCKET: {CLOUD}}, CLOUD),
    ({BUCKET: {()}}, ()),
], ids=["nobody names the bucket", "another prefix", "renamed", "renamed in some", "they differ",
        "of the same kind first", "an identity in place of a Secret", "the node's own identity"])
def test_a_bucket_is_used_as_those_ask_who_name_it_now(asked: dict[str, set[Access]], expected: Access) -> None:
    mark = replace(record(since=9 * DAY, store=BUCKET), access=OLD, claim_uid="")
    now = {uri: frozenset(ways) for uri, ways in asked.items()}
    (made,) = collect(seen(mark, asked=now), CONFIG)
    assert isinstance(made, Create)
    pod = made.manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    secrets = [("secret", entry["secretRef"]["name"]) for entry in container.get("envFrom", ())]
    accounts = [("serviceAccount", pod["serviceAccountName"])] if "serviceAccountName" in pod else []
    assert (*secrets, *accounts) == expected


def test_engines_of_two_names_that_became_one_go_together() -> None:
    old, new = (replace(record(fingerprint, since=9 * DAY, store=BUCKET), access=access, claim_uid="")
                for fingerprint, access in ((A, OLD), (B, NEW)))
    (made,) = collect(seen(old, new, asked={BUCKET: frozenset({NEW})}), CONFIG)
    assert isinstance(made, Create)
    assert made.manifest["metadata"]["annotations"][labels.ENGINES] == f"{A},{B}"


@pytest.mark.parametrize(("store", "fields", "expected"), [
    (BUCKET, {"everywhere": WANTED}, ["clear engine-aaaa"]),
    (BUCKET, {"all_settled": False}, []),
    (BUCKET, {}, ["remove A"]),
    (STORE, {"everywhere": WANTED}, ["remove A"]),
    (STORE, {"all_settled": False}, ["remove A"]),
])
def test_of_a_bucket_all_namespaces_have_a_say(store: str, fields: dict[str, Any], expected: list[str]) -> None:
    """A claim is of one namespace; a bucket may be the store of several."""
    assert told(collect(seen(record(since=9 * DAY, store=store), **fields), CONFIG)) == expected


@pytest.mark.parametrize(("references", "expected"), [
    (seen(record(), referenced=WANTED), []),
    (seen(record()), ["mark engine-aaaa"]),
    (seen(record(since=3 * DAY)), []),
    (seen(record(since=3 * DAY), referenced=WANTED), ["clear engine-aaaa"]),
    (seen(record(since=7 * DAY + timedelta(seconds=599))), []),
    (seen(record(since=7 * DAY + timedelta(seconds=600))), ["remove A"]),
    (seen(record(since=9 * DAY), referenced=WANTED), ["clear engine-aaaa"]),
    (seen(record(since=9 * DAY), settled=False), []),
    (seen(record(since=9 * DAY), jobs=(job(A),)), []),
    (seen(record(since=9 * DAY), referenced=WANTED, jobs=(job(A),)), []),
    (seen(record(since=9 * DAY), jobs=(job(B),)), []),
    (seen(record(since=9 * DAY), jobs=(job(B, store="pvc://other"),)), ["remove A"]),
    (seen(record(since=9 * DAY), jobs=(job(A, live=False, succeeded=True),)),
     ["delete ConfigMap engine-aaaa", "delete Job gc"]),
    (seen(record(since=9 * DAY), referenced=WANTED, jobs=(job(A, live=False, succeeded=True),)),
     ["delete ConfigMap engine-aaaa", "delete Job gc"]),
    (seen(record(), referenced=WANTED, jobs=(job(A, live=False, succeeded=True),)), ["delete Job gc"]),
    (seen(record(since=9 * DAY), jobs=(job(A, live=False),)), ["delete Job gc"]),
    (seen(record(since=9 * DAY), referenced=WANTED, jobs=(job(A, live=False),)),
     ["delete Job gc", "clear engine-aaaa"]),
], ids=[
    "in use", "unused", "within grace", "wanted again", "settling", "due", "wanted again although due",
    "an object has not spoken", "being removed", "wanted while being removed", "one job a store",
    "another store's job", "removed", "removed although wanted: it is built anew", "built anew meanwhile",
    "failed, again next round", "failed, and wanted again",
])
def test_step_by_step(references: EngineReferences, expected: list[str]) -> None:
    assert told(collect(references, CONFIG)) == expected
    assert collect(references, replace(CONFIG, collect_engines=False)) == ()


def test_a_job_takes_no_more_than_its_arguments_hold() -> None:
    many = [record(f"{number:064x}", since=9 * DAY) for number in range(ENGINES_AT_ONCE + 5)]
    (action,) = collect(seen(*many), CONFIG)
    assert isinstance(action, Create)
    engines = action.manifest["metadata"]["annotations"][labels.ENGINES].split(",")
    assert len(engines) == ENGINES_AT_ONCE
    args = action.manifest["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args == ["gc", "--store", "/store", "--grace", "604800", "--remove", *engines]


@dataclass
class World:
    """Records, what is referenced and until when it was, and the Jobs: moved by a test."""

    now: datetime = START
    records: dict[str, RecordMark] = field(default_factory=dict)
    referenced: set[str] = field(default_factory=set)
    last: dict[str, datetime] = field(default_factory=dict)
    jobs: list[CollectorJob] = field(default_factory=list)

    def round(self) -> None:
        references = EngineReferences(namespace="n", now=self.now, records=tuple(self.records.values()),
                          referenced=frozenset(self.referenced), jobs=tuple(self.jobs))
        for action in collect(references, CONFIG):
            match action:
                case MarkRecord(name=name, since=since):
                    self._change(name, since)
                case Create(manifest=manifest):
                    engines = manifest["metadata"]["annotations"][labels.ENGINES].split(",")
                    self.started(engines)
                    self.jobs.append(job(*engines))
                case Delete(kind="Job"):
                    self.jobs.clear()
                case Delete(name=name):
                    self.records = {key: found for key, found in self.records.items() if found.name != name}

    def want(self, name: str) -> None:
        """As a pass does: it takes the mark of a record away, and builds anew where there is none that counts."""
        self.referenced.add(name)
        self.records[name] = record(name)

    def started(self, engines: list[str]) -> None:
        for engine in engines:
            assert engine not in self.referenced
            assert self.now - self.last[engine] > timedelta(seconds=CONFIG.engine_grace)

    def _change(self, name: str, since: datetime | None) -> None:
        ((key, found),) = [item for item in self.records.items() if item[1].name == name]
        self.records[key] = replace(found, unreferenced=since)


NAMES = ("a" * 64, "b" * 64, "c" * 64)
EVENTS = st.one_of(
    st.tuples(st.just("want"), st.sampled_from(NAMES)), st.tuples(st.just("leave"), st.sampled_from(NAMES)),
    st.tuples(st.just("wait"), st.floats(0.001, 5.0)), st.tuples(st.sampled_from(["round", "done", "fail"]), st.none()),
)


@given(st.lists(EVENTS, max_size=60))
@settings(max_examples=settings().max_examples * 2)
def test_nothing_goes_that_was_wanted_within_the_grace_period(events: list[tuple[str, Any]]) -> None:
    world = World()
    for name in NAMES:
        world.records[name], world.last[name] = record(name), START
    for kind, value in events:
        if kind == "want":
            world.want(value)
        elif kind == "leave":
            if value in world.referenced:
                world.last[value] = world.now
            world.referenced.discard(value)
        elif kind == "wait":
            world.now += value * DAY
        elif kind == "round":
            world.round()
        else:
            world.jobs = [replace(found, live=False, succeeded=kind == "done") for found in world.jobs]


def test_all_that_is_unused_goes_in_the_end() -> None:
    world = World()
    for name in NAMES:
        world.records[name], world.last[name] = record(name), START
    world.referenced = {NAMES[0]}
    for _ in range(12):
        world.round()
        world.jobs = [replace(found, live=False, succeeded=True) for found in world.jobs]
        world.now += DAY
    assert set(world.records) == {NAMES[0]}
    assert world.jobs == []


def retired(cluster: Cluster, days: float) -> Cluster:
    """A newcomer that finds ``cluster``'s engine, which nobody has wanted for so long."""
    since = cluster.now - days * DAY
    records = {key: replace(found, unreferenced=since) for key, found in cluster.records.items()}
    newcomer = Cluster(name="newcomer", uid="u-9", records=records, now=cluster.now)
    newcomer.operate()
    newcomer.finish(resolved())
    newcomer.operate()
    return newcomer


def test_a_marked_record_is_a_hit_and_a_retired_one_asks_the_store() -> None:
    cluster = Cluster()
    cluster.settle()
    marked = retired(cluster, 6.9)
    assert marked.says("EngineBuilt") == "True/CacheHit"
    assert sum(text.startswith("Clear engine-") for text in described(marked.last)) == 1
    assert [found.unreferenced for found in marked.records.values()] == [None]
    newcomer = retired(cluster, 7.1)
    assert len(newcomer.running("build")) == 1
    newcomer.finish(replace(built(), cache_hit=True), of="build")
    plan = newcomer.operate()
    done = [text.split()[0] + " " + text.split()[1] for text in described(plan)]
    assert done.count("Replace ConfigMap") == 1, "in one write: others who want the engine never miss it"
    assert [found.unreferenced for found in newcomer.records.values()] == [None]
    assert newcomer.says("EngineBuilt") == "True/CacheHit"
