"""Finding 10: a CRD older than the operator stopped autoscaling without a word. The apiserver dropped a field of
status, the pass ended with an error before replicas were scraped, and the error could not be reported either, as it was
written with the resourceVersion of before."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enginewright.act.report import Reporter, plain
from enginewright.clients.errors import ConflictError, RefusedError, UnexpectedError
from enginewright.core.config import OperatorConfig
from enginewright.core.internal import has_old_places, joined, stored
from enginewright.core.observed import ObjectView
from enginewright.observe.keys import Key
from enginewright.reconcile.exposed import Exposed
from enginewright.reconcile.passes import Parts, Reconciler
from enginewright.reconcile.served_schema import ServedSchema
from support.cluster import SPEC, Cluster
from support.schemas import object_schema


class Apiserver:
    """It serves a CRD without ``status.<lacks>``, and prunes or refuses what it does not know. With ``schema_lags`` the
    schema that it publishes is still that of a complete CRD."""

    def __init__(self, cluster: Cluster, lacks: str, *, refuses: bool = False, schema_lags: bool = False) -> None:
        self.cluster, self.lacks, self.refuses, self.schema_lags = cluster, lacks, refuses, schema_lags
        self.version = 1
        self.writes: list[dict[str, Any]] = []
        self.kept = stored(plain(cluster.status), old_places=lacks == "internal")

    def view(self) -> ObjectView:
        return replace(self.cluster.view(), old_status=has_old_places(self.kept), resource_version=str(self.version))

    async def published(self, _resource: object) -> dict[str, Any]:
        schema = copy.deepcopy(object_schema())
        if not self.schema_lags:
            del schema["properties"]["status"]["properties"][self.lacks]
        kind = {"group": "enginewright.io", "version": "v1alpha1", "kind": "OptimisedModel"}
        return {"components": {"schemas": {"m": {**schema, "x-kubernetes-group-version-kind": [kind]}}}}

    async def apply_status(self, _namespace: str, _name: str, version: str, status: dict[str, Any]) -> dict[str, Any]:
        if version != str(self.version):
            raise ConflictError("the object has been modified", call="apply")
        if self.refuses and self.lacks in status:
            raise RefusedError(f"field not declared in schema: .status.{self.lacks}", call="apply", status=500)
        kept = {key: value for key, value in plain(status).items() if key != self.lacks}
        if kept != self.kept:
            self.version += 1
        self.kept, self.cluster.status = kept, joined(kept)
        self.writes.append(status)
        return {"metadata": {"resourceVersion": str(self.version)}, "status": kept}


def operator(apiserver: Apiserver) -> tuple[Reconciler, list[object]]:
    """A fresh operator over ``apiserver``, and what it has told its scraper to watch."""
    cluster, watched = apiserver.cluster, list[object]()

    async def find(_namespace: str, _name: str, **_: object) -> ObjectView:
        return apiserver.view()

    async def observe(*_: object) -> object:
        return cluster.observe()

    async def confirm(*_: object, **__: object) -> bool:
        return True

    async def execute(_namespace: str, actions: Any, _log: object) -> None:
        for action in actions:
            cluster.act(action)

    async def nothing(*_: object) -> None:
        pass

    kube = cast(Any, apiserver)
    reporter = Reporter(kube, cast(Any, SimpleNamespace(record=nothing)), ServedSchema(kube), lambda: None)
    parts = SimpleNamespace(
        world=SimpleNamespace(find=find, observe=observe, confirm=confirm, now=lambda: cluster.now),
        actor=SimpleNamespace(execute=execute), reporter=reporter,
        signals=SimpleNamespace(window=lambda _: cluster.signals, forget=nothing, recommend=lambda *_: None,
                                watch=lambda *_: watched.append(1)),
        known=SimpleNamespace(remember=lambda *_: None), exposed=Exposed(), config=OperatorConfig(),
        looked=lambda _: None, decide=lambda *_: cluster.plan(), urgent=lambda: False)
    return Reconciler(cast(Parts, parts)), watched


def autoscaled() -> Cluster:
    cluster = Cluster(spec={**SPEC, "autoscaling": {"maxReplicas": 8, "algorithm": "queue"}})
    cluster.settle()
    return cluster


def one_pass(reconciler: Reconciler) -> None:
    asyncio.run(reconciler.reconcile(Key("prod", "minilm")))


@pytest.mark.parametrize("refuses", [False, True], ids=["prunes", "refuses"])
@pytest.mark.parametrize("lacks", ["summary", "rollout", "autoscaling"])
def test_10_an_old_crd_does_not_keep_replicas_from_being_scaled(lacks: str, refuses: bool) -> None:
    cluster = autoscaled()
    cluster.status = {}
    apiserver = Apiserver(cluster, lacks, refuses=refuses)
    reconciler, watched = operator(apiserver)
    one_pass(reconciler)
    assert watched
    assert cluster.status["conditions"]
    assert lacks not in cluster.status
    cluster.queue(64)
    one_pass(reconciler)
    assert max(cluster.replicas().values()) > 1


def test_10_what_the_crd_lacks_is_not_written_again_in_each_pass() -> None:
    apiserver = Apiserver(autoscaled(), "summary")
    reconciler, _ = operator(apiserver)
    one_pass(reconciler)
    before = len(apiserver.writes)
    one_pass(reconciler)
    one_pass(reconciler)
    assert len(apiserver.writes) == before


def test_10_what_the_operator_remembers_survives_a_crd_without_its_field() -> None:
    """In the places where operators of before wrote it, and below the field once the CRD has it."""
    apiserver = Apiserver(autoscaled(), "internal")
    reconciler, _ = operator(apiserver)
    one_pass(reconciler)
    one_pass(reconciler)
    before = len(apiserver.writes)
    one_pass(reconciler)
    assert len(apiserver.writes) == before, "nothing differs"
    key = apiserver.kept["source"]["key"]
    apiserver.lacks, apiserver.schema_lags = "nothing", True
    one_pass(operator(apiserver)[0])
    assert "key" not in apiserver.kept["source"]
    assert apiserver.kept["internal"]["source"]["key"] == key
    assert len(apiserver.writes) == before + 1


def test_10_a_field_that_goes_for_no_known_reason_is_told_in_status_and_replicas_are_watched() -> None:
    cluster = autoscaled()
    cluster.status = {}
    reconciler, watched = operator(Apiserver(cluster, "summary", schema_lags=True))
    with pytest.raises(UnexpectedError, match=r"status\.summary was changed"):
        one_pass(reconciler)
    assert watched
    assert cluster.says("Ready") == "False/OperatorError"
