"""One pass of the reconciler around a real decision, with the world's and the cluster's ends replaced by fakes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enginewright.clients.errors import (
    ClientError,
    ConflictError,
    RefusedError,
    TooLargeError,
    TransientError,
    UnexpectedError,
)
from enginewright.core.config import OperatorConfig
from enginewright.core.decide.converge import remove
from enginewright.core.observed import ObjectView
from enginewright.core.plan import Action, Create, Delete, Event, Plan, Scale
from enginewright.core.reasons import Reason
from enginewright.observe.keys import Key
from enginewright.observe.reads import Trail
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


@dataclass
class Pass:
    """What came of it: the actions that were carried out, the status and the reasons of the events that it wrote.
    ``order`` is that of the writes."""

    done: list[Action]
    status: dict[str, Any]
    told: list[str]
    order: list[str] = field(default_factory=list)


async def nothing(*_: object, **__: object) -> None:
    pass


def one_pass(cluster: Cluster, fails: Callable[[Action], bool] = lambda _: True, plan: Plan | None = None,
             error: type[ClientError] | None = TransientError,
             later: Callable[[ObjectView], ObjectView | None] = lambda view: view, urgent: Sequence[bool] = (False,),
             says: Callable[[], None] = lambda: None, hurried: bool = False,
             survives: tuple[type[Exception], ...] = ()) -> Pass:
    """A pass whose actions fail with ``error`` where ``fails`` says so; None where nothing is to be tried. ``later`` is
    what the object is once its children were read. It makes a pass for each of ``urgent``, which says whether other
    queues rise then, ``hurried`` where its own does, and calls ``says`` before it writes status. Another pass follows
    one that raised an error of ``survives``."""
    came = Pass([], {}, [])
    others: list[bool] = []
    observed = False

    async def find(_namespace: str, _name: str, *, fresh: bool = True) -> object:
        return later(cluster.view()) if observed else cluster.view()

    async def observe(_view: object, _signals: object, trail: Trail | None) -> object:
        nonlocal observed
        observed = trail is None
        return cluster.observe()

    async def execute(_namespace: str, actions: Iterable[Action], _log: object) -> None:
        for action in actions:
            if error is not None and fails(action):
                raise error("no", call="POST")
            came.done.append(action)
            came.order.append(type(action).__name__)

    async def status(view: ObjectView, wanted: dict[str, Any]) -> ObjectView:
        says()
        came.order.append("status")
        came.status = json.loads(json.dumps(wanted))
        return replace(view, status=came.status, resource_version=f"{view.resource_version}+")

    async def events(_view: object, told: Iterable[Event], _log: object) -> None:
        came.told += [event.reason for event in told]

    parts = SimpleNamespace(
        world=SimpleNamespace(find=find, observe=observe, confirm=nothing, now=lambda: cluster.now),
        actor=SimpleNamespace(execute=execute), reporter=SimpleNamespace(status=status, events=events),
        signals=SimpleNamespace(window=lambda _: None, watch=lambda *_: None, forget=nothing,
                                recommend=lambda *_: None),
        known=SimpleNamespace(remember=lambda *_: None), exposed=Exposed(), config=OperatorConfig(),
        looked=lambda _: None, decide=lambda *_: plan or cluster.plan(), urgent=lambda: others[-1])
    reconciler = Reconciler(cast(Parts, parts))
    with pytest.raises(error) if error is not None else contextlib.nullcontext():
        for rises in urgent:
            others.append(rises)
            with contextlib.suppress(*survives):
                asyncio.run(reconciler.reconcile(Key("prod", "minilm"), hurried=hurried))
    return came


def test_what_could_not_be_kept_is_kept_by_the_next_pass() -> None:
    cluster = Cluster(spec=SPEC)
    until_kept(cluster)
    cluster.status = one_pass(cluster).status
    assert keeps(cluster.plan())


def surge_during_a_build() -> Cluster:
    """Replicas serve, the spec asks for another engine, and a queue asks for more replicas in the pass that begins its
    build."""
    cluster = Cluster(spec={**SPEC, "autoscaling": {"maxReplicas": 8, "algorithm": "queue"}})
    cluster.settle()
    cluster.edit(engine={"maxBatchSize": 16})
    cluster.queue(64)
    for _ in range(10):
        plan = cluster.plan()
        if any(map(_scales, plan.serving)) and any(map(_builds, plan.building)):
            return cluster
        cluster.operate()
        cluster.settle_jobs()
        cluster.queue(64)
    pytest.fail("no pass that begins a build scaled")


def _scales(action: Action) -> bool:
    return isinstance(action, Scale)


def _builds(action: Action) -> bool:
    return isinstance(action, Create) and action.manifest["kind"] == "Job"


def decisions(status: Mapping[str, Any]) -> int:
    return len(status["autoscaling"].get("decisions", ()))


def test_a_build_that_cannot_be_begun_leaves_what_serves_to_be_scaled() -> None:
    cluster = surge_during_a_build()
    came = one_pass(cluster, _builds)
    assert any(map(_scales, came.done))
    assert not any(map(_builds, came.done))
    assert decisions(came.status) == decisions(cluster.status) + 1
    assert Reason.SCALING in came.told


def test_a_scale_that_fails_is_not_told_as_done() -> None:
    cluster = surge_during_a_build()
    came = one_pass(cluster, _scales)
    assert any(map(_builds, came.done))
    assert decisions(came.status) == decisions(cluster.status)
    assert Reason.SCALING not in came.told


def test_what_fails_after_a_scale_leaves_it_told() -> None:
    cluster, last = surge_during_a_build(), Delete(api_version="v1", kind="Pod", name="p", why="it comes after")
    plan = cluster.plan()
    came = one_pass(cluster, lambda action: action is last, replace(plan, serving=(*plan.serving, last)))
    assert decisions(came.status) == decisions(cluster.status) + 1
    assert Reason.SCALING in came.told


def test_a_deployment_that_another_one_was_made_in_place_of_is_nothing_to_tell() -> None:
    """The next pass looks again."""
    cluster = surge_during_a_build()
    before, (deployed,) = cluster.plan(), cluster.deployments.values()
    late = replace(before, building=(), serving=(remove(deployed, "it is late"),))
    came = one_pass(cluster, plan=late, error=ConflictError)
    assert came.status == json.loads(json.dumps(before.status))
    assert Reason.API_REFUSED not in came.told


@pytest.mark.parametrize("later", [
    lambda view: replace(view, deleting=True), lambda _: None, lambda view: replace(view, uid="of another"),
], ids=["deleting", "gone", "made again"])
def test_nothing_is_done_for_an_object_that_goes_while_its_children_are_read(
    later: Callable[[ObjectView], ObjectView | None]
) -> None:
    """They may be read after ``--cascade=orphan`` took the owner off them, and look as if they had to be made."""
    came = one_pass(Cluster(spec=SPEC), error=None, later=later)
    assert came == Pass([], {}, [], [])


def test_what_stays_is_acted_for() -> None:
    assert one_pass(Cluster(spec=SPEC), error=None).done


def surge() -> Cluster:
    """A queue asks for more replicas, and there is nothing else to do."""
    cluster = Cluster(spec={**SPEC, "autoscaling": {"maxReplicas": 8, "algorithm": "queue"}})
    cluster.settle()
    cluster.queue(64)
    assert {type(action) for action in cluster.plan().actions} == {Scale}
    return cluster


def test_a_number_of_replicas_is_written_before_status_says_so() -> None:
    cluster = surge()
    came = one_pass(cluster, error=None)
    assert came.order == ["Scale", "status"]
    assert decisions(came.status) == decisions(cluster.status) + 1


def test_where_other_queues_rise_the_next_pass_says_that_replicas_were_scaled() -> None:
    cluster = surge()
    assert one_pass(cluster, error=None, urgent=[True, True]).order == ["Scale"]
    came = one_pass(cluster, error=None, urgent=[True, False])
    assert came.order[:2] == ["Scale", "status"]
    assert came.told.count(Reason.SCALING) >= 1


def test_a_scaling_is_said_before_the_same_queue_makes_another() -> None:
    assert one_pass(surge(), error=None, urgent=[True, True], hurried=True).order == ["Scale", "status", "Scale"]


def test_a_scaling_is_said_some_seconds_later_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginewright.reconcile.passes.HELD", 0.0)
    assert one_pass(surge(), error=None, urgent=[True, True]).order[:2] == ["Scale", "status"]


def test_a_scaling_that_was_not_said_is_dropped_where_the_object_has_changed() -> None:
    """It is in the log, and the next pass works the number out from what there is."""

    def changed() -> None:
        raise ConflictError("changed", call="PATCH")

    came = one_pass(surge(), error=ConflictError, fails=lambda _: False, urgent=[True, True, False], says=changed)
    assert came.order == ["Scale", "Scale"]
    assert came.told == []


@pytest.mark.parametrize("error", [RefusedError, TooLargeError, UnexpectedError])
def test_a_scaling_that_status_may_not_say_keeps_no_pass_from_scaling(error: type[ClientError]) -> None:
    """As where a webhook or a quota refuses status: each pass works the number of replicas out all the same."""

    def refused() -> None:
        raise error("no", call="PATCH")

    came = one_pass(surge(), error=None, urgent=[True, False, False], says=refused, survives=(error,))
    assert came.order == ["Scale"] * 3


@pytest.mark.parametrize("error", [TransientError, asyncio.CancelledError])
def test_a_scaling_that_could_not_be_said_yet_is_said_by_the_pass_after(error: type[Exception]) -> None:
    errors = [error]

    def busy() -> None:
        if errors:
            raise errors.pop()("later")

    came = one_pass(surge(), error=None, urgent=[True, False, False], says=busy, survives=(error,))
    assert came.order[:2] == ["Scale", "status"]
    assert came.told.count(Reason.SCALING) >= 1
