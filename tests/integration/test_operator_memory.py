"""What the operator remembers, on a real apiserver: what a quiet object costs, and what happens when watches lie."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from enginewright.clients.resources import DEPLOYMENT, OPTIMISED_MODEL, SERVICE, Resource
from enginewright.core import labels
from enginewright.observe.fields import Raw
from enginewright.observe.keys import Key
from enginewright.observe.reads import Confirming, Trail
from enginewright.reconcile.queue import Lane
from enginewright.runtime import Operator
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import Depths, embedded

MINE = f"{labels.MODEL}=minilm"


@pytest.fixture(autouse=True)
def compared_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator compares its memory with the cluster when it starts, and then when a test says so. Half a minute
    later it would do so by itself: a busy machine is in the middle of a test by then, whose calls are counted."""
    monkeypatch.setattr("enginewright.reconcile.remembering.SOON", 3600.0)


def calls(operator: Operator) -> Counter[str]:
    """To the apiserver so far, by verb and resource."""
    samples = (one for metric in operator.metrics.api_seconds.collect() for one in metric.samples)
    return Counter({f"{one.labels['verb']} {one.labels['resource']}": int(one.value) for one in samples
                    if one.name.endswith("_count")})


def passes(operator: Operator) -> float:
    return operator.metrics.registry.get_sample_value("enginewright_reconcile_passes_total", {"result": "ok"}) or 0.0


async def one_more_pass(operator: Operator, models: Models) -> Counter[str]:
    """The calls that it made."""
    before, done = calls(operator), passes(operator)
    operator.queue.add(Key(models.namespace, "minilm"))

    async def is_over() -> bool:
        return passes(operator) > done

    await eventually(is_over)
    return calls(operator) - before


async def served(operator: Operator, models: Models) -> None:
    """Until a model serves and three passes in a row have made no call."""
    await models.create(model())
    await models.wait("Ready", "True")
    quiet = 0

    async def three_quiet_passes() -> bool:
        nonlocal quiet
        quiet = 0 if await one_more_pass(operator, models) else quiet + 1
        return quiet == 3

    await eventually(three_quiet_passes)


async def test_passes_of_a_quiet_object_ask_the_apiserver_for_nothing(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await served(operator, models)
    assert [await one_more_pass(operator, models) for _ in range(10)] == [Counter()] * 10


async def test_a_comparison_mends_what_no_watch_told_of(
    operator: Operator, models: Models, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone deletes the Service, and memory hears nothing of it."""
    await served(operator, models)
    told = operator.watcher._saw

    def deaf(resource: Resource, change: str | None, raw: Raw) -> None:
        if resource != SERVICE:
            told(resource, change, raw)

    monkeypatch.setattr(operator.watcher, "_saw", deaf)
    await models.kube.delete(SERVICE, models.namespace, "minilm")
    assert "apply services" not in await one_more_pass(operator, models)
    assert await models.names(SERVICE, MINE) == []
    assert await operator.memory.heal() == 1

    async def made_again() -> bool:
        return await models.names(SERVICE, MINE) == ["minilm"]

    await eventually(made_again)


async def test_a_replica_is_taken_back_that_a_spec_forbids_of_which_memory_has_not_heard(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests wait, so that the operator does not ask for the object before it scales up."""
    depths = Depths()
    async with embedded(operator_kubeconfig, namespace, triton=depths) as operator:
        await models.create(model(autoscaling={"minReplicas": 1, "maxReplicas": 4, "targetQueueDepth": 4}))
        await models.wait("Ready", "True")
        told = operator.watcher._saw

        def deaf(resource: Resource, change: str | None, raw: Raw) -> None:
            if resource != OPTIMISED_MODEL:
                told(resource, change, raw)

        monkeypatch.setattr(operator.watcher, "_saw", deaf)
        await models.patch({"spec": {"autoscaling": None, "replicas": 1}})
        (first,) = kubelet.addresses.values()
        depths.queued = {first: 12}

        async def taken_back() -> bool:
            # A pass for another cause may write status before the queue is read: it hears of the spec by the refusal,
            # so that nothing is scaled up at all.
            found = await models.get()
            (deployment,) = await models.kube.list_all(DEPLOYMENT, namespace, labels=MINE)
            return bool(found["status"]["observedGeneration"] == 2 and deployment["spec"]["replicas"] == 1)

        await eventually(taken_back)
        assert (await models.wait("Ready", "True"))["observedGeneration"] == 2


async def with_engine_in_store(operator: Operator, models: Models) -> dict[str, str]:
    """The source of a model whose engine is on record: another one of it needs no Job."""
    await served(operator, models)
    digest = (await models.get("minilm"))["status"]["source"]["digest"]
    return {"uri": "pvc://models/minilm", "digest": digest}


async def test_a_new_model_with_its_engine_in_the_store_costs_no_list_and_no_job(
    operator: Operator, models: Models, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long a busy machine takes: a model that is on its way for longer is looked at in the apiserver.
    monkeypatch.setattr("enginewright.reconcile.passes.TRUST", 3600.0)
    source = await with_engine_in_store(operator, models)
    before = calls(operator)
    await models.create(model("other", source=source))
    await models.wait("Ready", "True", name="other")
    made = calls(operator) - before
    assert not [call for call in made if call.startswith("list") or call == "create jobs"]
    assert made["create deployments"] == 1
    assert made["get configmaps"] == 1, "the record of the engine; that the first revision is proven needs no other"
    assert not [call for call in made if call.startswith("get") and call.split()[1] in
                ("pods", "deployments", "services", "endpointslices")]


async def test_where_many_are_new_status_of_each_is_written_once(
    operator: Operator, models: Models, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await with_engine_in_store(operator, models)
    monkeypatch.setattr("enginewright.reconcile.passes.LATEST", 1e6)
    monkeypatch.setattr(operator.queue, "waiting", lambda lane: int(lane == Lane.ASKED))
    before = calls(operator)
    await models.create(model("other", source=source))
    await models.wait("Ready", "True", name="other")
    await one_more_pass(operator, models)
    made = calls(operator) - before
    assert made["apply optimisedmodels"] == 1
    assert made["create deployments"] == made["create services"] == 1


async def test_a_deployment_that_memory_never_hears_of_is_not_made_again(
    operator: Operator, models: Models, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await with_engine_in_store(operator, models)
    keep = operator.memory._keep

    def deaf(resource: Resource, raw: Raw, began: float | None = None) -> None:
        if resource != DEPLOYMENT:
            keep(resource, raw, began)

    monkeypatch.setattr(operator.memory, "_keep", deaf)
    before = calls(operator)
    await models.create(model("other", source=source))
    await models.wait("Ready", "True", name="other")
    made = calls(operator) - before
    assert made["create deployments"] == 1
    assert made["list deployments"], "the Service names a revision that memory does not know"


async def test_nothing_is_made_for_a_model_that_goes_while_its_look_is_confirmed(
    operator: Operator, models: Models, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await with_engine_in_store(operator, models)
    confirming, confirm = Confirming.all_as_seen, []

    async def late(self: Confirming, trail: Trail) -> bool:
        confirm.append(trail)
        await models.delete("other")
        return await confirming(self, trail)

    monkeypatch.setattr(Confirming, "all_as_seen", late)
    await models.create(model("other", source=source))

    async def forgotten() -> bool:
        return bool(confirm) and Key(models.namespace, "other") not in operator.known

    await eventually(forgotten)
    assert await models.names(DEPLOYMENT, f"{labels.MODEL}=other") == []
