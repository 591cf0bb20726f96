"""What a look at memory costs: it unpacks and looks through as much however many other objects there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, cast
from unittest.mock import Mock

import pytest

from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import (
    DEPLOYMENT,
    ENDPOINT_SLICE,
    JOB,
    LEASE,
    OPTIMISED_MODEL,
    POD,
    SERVICE,
    Resource,
)
from enginewright.core import labels
from enginewright.core.conditions import micro_time
from enginewright.core.manifests import Owner, build_lease, record_name
from enginewright.core.observed import Observed
from enginewright.observe import memory as remembered
from enginewright.observe.memory import Memory
from enginewright.observe.packing import Packer
from enginewright.observe.reads import Trail
from enginewright.observe.records import RecordReader
from enginewright.observe.world import World
from support.cluster import SPEC, START, Cluster

OTHERS = 40


class Kube:
    """Lists nothing, and can be asked for nothing else."""

    async def gather(self, *_: Any, **__: Any) -> list[Object]:
        return []


class Namespace:
    """What is remembered of one: a model that is served, and others that build and serve."""

    def __init__(self) -> None:
        self.memory = Memory(cast(KubeClient, Kube()))
        asyncio.run(self.memory.heal())
        self.version = 0
        self.cluster = Cluster(spec=SPEC)
        self.cluster.settle()
        (self.fingerprint,) = self.cluster.records
        self.store = self.cluster.records[self.fingerprint].store_uri
        self.model(self.cluster.name)

    def keep(self, resource: Resource, name: str, marks: Mapping[str, str],
             annotations: Mapping[str, str] | None = None, **fields: Any) -> None:
        """With an owner, as all children have one."""
        self.version += 1
        view = self.cluster.view()
        owner = view.uid if marks.get(labels.MODEL) == view.name else "another"
        metadata = {"name": name, "namespace": view.namespace, "uid": f"u-{name}",
                    "resourceVersion": str(self.version), "annotations": dict(annotations or {}), "labels": marks,
                    "ownerReferences": [{"uid": owner, "controller": True}]}
        self.memory.saw(resource, "ADDED", {"metadata": metadata, **fields})

    def model(self, name: str) -> None:
        mine = {labels.MODEL: name}
        for resource in (OPTIMISED_MODEL, DEPLOYMENT, POD, SERVICE):
            self.keep(resource, name, mine)
        self.keep(ENDPOINT_SLICE, f"{name}-slice", {**mine, "kubernetes.io/service-name": name})

    def builds(self, name: str, fingerprint: str) -> None:
        """A model that builds the engine, with a claim that has run out."""
        owner = Owner(name=name, namespace=self.cluster.view().namespace, uid=f"u-{name}")
        lease = build_lease(owner, fingerprint, self.store, START - timedelta(days=1))
        metadata = lease["metadata"]
        self.keep(LEASE, metadata["name"], metadata["labels"], metadata["annotations"], spec=lease["spec"])
        marks = {labels.MODEL: name, labels.STEP: labels.COMPONENT_BUILD,
                 labels.FINGERPRINT: labels.fingerprint_label(fingerprint)}
        self.keep(JOB, f"{name}-build", marks, {labels.STORE_URI: self.store}, status={"active": 1})

    def looking(self) -> Coroutine[Any, Any, Observed]:
        kube = cast(KubeClient, Kube())
        world = World(kube, lambda: self.cluster.now, lambda: 0.0, config=self.cluster.config, logs=Mock(),
                      records=RecordReader(kube, lambda _: None, self.memory), memory=self.memory)
        return world.observe(self.cluster.view(), None, Trail())

    def observe(self) -> Observed:
        return asyncio.run(self.looking())


def costs(here: Namespace, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many objects are unpacked and how many are compared with a selector."""
    counted = Counter[str]()

    def counting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*what: Any) -> Any:
            counted[name] += 1
            return real(*what)

        return call

    for place, name in ((Packer, "unpacked"), (remembered, "_matches")):
        monkeypatch.setattr(place, name, counting(name, getattr(place, name)))
    here.observe()
    monkeypatch.undo()
    return counted


def test_the_cost_of_a_pass_does_not_grow_with_the_number_of_other_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Namespace()
    here.builds("other", here.fingerprint)
    alone = costs(here, monkeypatch)
    assert alone["unpacked"] > 4, "the model's own objects, and the claim and the Job of who builds its engine"
    for number in range(OTHERS):
        here.model(f"other-{number}")
        here.builds(f"other-{number}", f"{number:064x}")
    assert costs(here, monkeypatch) == alone


def test_a_look_at_memory_is_over_before_another_pass_begins() -> None:
    """Of fifty passes that begin at one moment, the first asks the apiserver while the others still look."""
    here = Namespace()
    here.builds("other", here.fingerprint)
    with pytest.raises(StopIteration):
        here.looking().send(None)


def test_who_builds_the_same_engine_is_seen_by_the_name_of_the_claim() -> None:
    here = Namespace()
    assert here.observe().leases == {}
    here.builds("other", here.fingerprint)
    here.builds("stranger", "f" * 64)
    ((fingerprint, lease),) = here.observe().leases.items()
    assert (fingerprint, lease.name) == (here.fingerprint, record_name(here.fingerprint, here.store))
    assert lease.building, "it has run out, and its Job lives"


def test_a_claim_without_marks_is_seen_as_well() -> None:
    """It would keep the engine from being built: who claims it makes a Lease of the same name."""
    here = Namespace()
    name = record_name(here.fingerprint, here.store)
    here.keep(LEASE, name, {labels.BUILDS: "true"},
              spec={"holderIdentity": "prod/gone/u", "leaseDurationSeconds": 120, "renewTime": micro_time(START)})
    assert [lease.name for lease in here.observe().leases.values()] == [name]


def test_the_objects_own_claims_are_seen_whatever_they_are_for() -> None:
    """It gives up those that it does not want any more."""
    here = Namespace()
    here.builds(here.cluster.name, "f" * 64)
    assert list(here.observe().leases) == ["f" * 64]
