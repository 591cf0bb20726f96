"""One pass of the reconciler around a real decision, with the world's and the cluster's ends replaced by fakes."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enginewright.clients.errors import TransientError
from enginewright.core.config import OperatorConfig
from enginewright.core.plan import Create, Plan
from enginewright.observe.keys import Key
from enginewright.reconcile.exposed import Exposed
from enginewright.reconcile.passes import Parts, Reconciler
from support.cluster import SPEC, Cluster


def keeps(plan: Plan) -> bool:
    """Whether the plan keeps a revision to go back to."""
    return any(isinstance(action, Create) and "going back" in action.why for action in plan.actions)


def until_kept(cluster: Cluster) -> None:
    for _ in range(100):
        if keeps(cluster.plan()):
            return
        cluster.operate()
        cluster.settle_jobs()
        cluster.controllers()
        cluster.wait(1)
    pytest.fail("no revision was ever kept")


async def one_pass(cluster: Cluster) -> dict[str, Any]:
    """A pass whose actions fail; returns the status that it wrote."""
    written: list[dict[str, Any]] = []

    async def find(_namespace: str, _name: str) -> object:
        return cluster.view()

    async def observe(_view: object, _signals: object) -> object:
        return cluster.observe()

    async def execute(*_: object) -> None:
        raise TransientError("503", call="POST configmaps")

    async def status(_view: object, wanted: dict[str, Any]) -> bool:
        written.append(json.loads(json.dumps(wanted)))
        return True

    async def nothing(*_: object) -> None:
        pass

    parts = SimpleNamespace(
        world=SimpleNamespace(find=find, observe=observe, now=lambda: cluster.now),
        actor=SimpleNamespace(execute=execute), reporter=SimpleNamespace(status=status, events=nothing),
        signals=SimpleNamespace(window=lambda _: None, watch=lambda *_: None, forget=nothing,
                                recommend=lambda *_: None),
        known=SimpleNamespace(remember=lambda *_: None), exposed=Exposed(), config=OperatorConfig(),
        decide=lambda *_: cluster.plan())
    with pytest.raises(TransientError):
        await Reconciler(cast(Parts, parts)).reconcile(Key("prod", "minilm"))
    return written[0]


def test_what_could_not_be_kept_is_kept_by_the_next_pass() -> None:
    cluster = Cluster(spec=SPEC)
    until_kept(cluster)
    cluster.status = asyncio.run(one_pass(cluster))
    assert keeps(cluster.plan())
