"""What the operator remembers, on a real apiserver: what a quiet object costs, and what happens when watches lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from enginewright.clients.resources import SERVICE, Resource
from enginewright.core import labels
from enginewright.observe.fields import Raw
from enginewright.observe.keys import Key
from enginewright.runtime import Operator
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded

MINE = f"{labels.MODEL}=minilm"


@pytest.fixture
async def operator(operator_kubeconfig: Path, namespace: str) -> AsyncIterator[Operator]:
    async with embedded(operator_kubeconfig, namespace) as running:
        yield running


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
