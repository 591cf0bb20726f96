"""Nodes are read when somebody has a use for them, seldom, and no pass fails for want of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from enginewright.clients.errors import ClientError, RefusedError, TransientError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import NODE, Resource
from enginewright.core.observed import JobView, ObjectView, Observed, PodView
from enginewright.core.spec import Spec, parse_spec
from enginewright.observe.nodes import FRESH, REFUSED_FOR, NodeReader, wanted
from enginewright_builder.contract import Facts, ImageFacts, Outcome
from support.fleets import H100
from support.nodes import node, pod

NOW = datetime(2026, 11, 21, tzinfo=UTC)
FINGERPRINT = "f" * 64


@dataclass
class FakeKube:
    """Answers lists by what is asked for; ``error`` is what the next ones raise."""

    objects: list[Object]
    error: ClientError | None = None
    asked: list[str] = field(default_factory=list)

    async def list_cached(self, resource: Resource, *, labels: str = "", fields: str = "") -> list[Object]:
        self.asked.append(f"{resource.plural} {labels}{fields}")
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        if resource is NODE:
            return [one for one in self.objects if one["kind"] == "Node" and labels in one["metadata"]["labels"]]
        name = fields.removeprefix("spec.nodeName=")
        return [one for one in self.objects if one["kind"] == "Pod" and one["spec"].get("nodeName") == name]


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def reader(*objects: Object, error: ClientError | None = None) -> tuple[NodeReader, FakeKube, Clock]:
    kube, clock = FakeKube(list(objects), error), Clock()
    return NodeReader(cast(KubeClient, kube), clock), kube, clock


FLEET = (node("b", H100, count=1, **{"mig-1g.10gb": 7}), node("a", H100, count=1, gpu=1), node("cpu", ""),
         pod("p", "b", {"nvidia.com/mig-1g.10gb": 2}), pod("q", "cpu", {}),
         pod("done", "b", {"nvidia.com/mig-1g.10gb": 1}, phase="Succeeded"))


async def test_only_nodes_with_known_gpus_and_who_runs_there() -> None:
    nodes, kube, _ = reader(*FLEET)
    views = await nodes.views()
    assert views is not None
    assert [(view.name, dict(view.allocatable), [(use.pod, use.devices) for use in view.pods]) for view in views] == [
        ("a", {"nvidia.com/gpu": "1"}, []),
        ("b", {"nvidia.com/mig-1g.10gb": "7"}, [("p", {"nvidia.com/mig-1g.10gb": 2})]),
    ]
    assert sorted(kube.asked) == ["nodes nvidia.com/gpu.product", "pods spec.nodeName=a", "pods spec.nodeName=b"]


async def test_one_reading_serves_all_passes_for_a_while() -> None:
    nodes, kube, clock = reader(*FLEET)
    both = await asyncio.gather(nodes.views(), nodes.views())
    assert both[0] is both[1]
    clock.now = FRESH - 1
    assert await nodes.views() is both[0]
    assert len(kube.asked) == 3
    clock.now = FRESH
    assert await nodes.views() is not both[0]
    assert len(kube.asked) == 6


@pytest.mark.parametrize(("error", "again"), [
    (RefusedError("403 nodes is forbidden", call="list", status=403), REFUSED_FOR),
    (TransientError("no answer", call="list"), FRESH),
])
async def test_what_cannot_be_read_is_not_known_and_tried_again_later(error: ClientError, again: float) -> None:
    nodes, kube, clock = reader(*FLEET, error=error)
    assert await nodes.views() is None
    clock.now = again - 1
    assert await nodes.views() is None
    assert len(kube.asked) == 1
    kube.error, clock.now = None, again
    assert await nodes.views() is not None


async def test_pods_that_cannot_be_read_leave_no_half_picture() -> None:
    nodes, kube, _ = reader(*FLEET)
    whole = kube.list_cached

    async def half(resource: Resource, **selectors: Any) -> list[Object]:
        if resource is not NODE:
            raise RefusedError("403 pods is forbidden", call="list", status=403)
        return await whole(resource, **selectors)

    kube.list_cached = half  # type: ignore[method-assign]
    assert await nodes.views() is None


def spec(**placement: Any) -> Spec:
    found = parse_spec({"source": {"uri": "pvc://models/m"}, "placement": {"accelerator": "gpu", **placement}})
    assert isinstance(found, Spec), found
    return found


def view(**status: Any) -> ObjectView:
    return ObjectView(name="m", namespace="n", uid="u", generation=1, resource_version="1", deleting=False,
                      annotations={}, spec={}, status=status)


WAITING = PodView(name="p", phase="Pending", unschedulable="0/1 nodes are available")
QUIET = Observed(now=NOW)
BUILT = replace(QUIET, records={FINGERPRINT: cast(Any, None)})


def job(**fields: Any) -> JobView:
    return JobView(name="j", uid="u", created=NOW, **fields)


ANSWERED = job(step="ask", outcome=Outcome(kind="ask", ok=True, facts=Facts(
    server=ImageFacts(cuda="12.6"), builder=ImageFacts())))


@pytest.mark.parametrize(("seen", "asked", "use"), [
    pytest.param(QUIET, {}, False, id="it asks for no driver"),
    pytest.param(QUIET, {"server": {"cuda": "12.6"}}, True, id="a build may begin"),
    pytest.param(replace(QUIET, jobs=(ANSWERED,)), {}, True, id="it has just been asked"),
    pytest.param(replace(QUIET, jobs=(job(fingerprint=FINGERPRINT),)), {"server": {"cuda": "12.6"}}, False,
                 id="the build has begun"),
    pytest.param(BUILT, {"server": {"cuda": "12.6"}}, False, id="it is built"),
    pytest.param(QUIET, {"server": "nonsense"}, False, id="a status that somebody edited"),
])
def test_before_a_build_for_an_image_that_asks_for_a_driver(seen: Observed, asked: dict[str, Any], use: bool) -> None:
    assert wanted(spec(), view(fingerprint=FINGERPRINT, **asked), seen) is use


@pytest.mark.parametrize(("asks", "seen", "use"), [
    pytest.param(spec(), QUIET, False, id="nothing waits"),
    pytest.param(spec(), replace(QUIET, pods=(WAITING,)), True, id="a replica waits"),
    pytest.param(spec(), replace(QUIET, jobs=(JobView(name="j", uid="u", created=NOW, pods=(WAITING,)),)), True,
                 id="a build waits"),
    pytest.param(spec(), BUILT, False, id="a revision is about to start"),
    pytest.param(spec(accelerator="cpu"), replace(QUIET, pods=(WAITING,)), False, id="CPUs"),
    pytest.param(spec(mig={"profile": "3g.40gb", "dra": {"deviceClassName": "mig.nvidia.com"}}),
                 replace(QUIET, pods=(WAITING,)), False, id="claimed devices"),
    pytest.param(None, replace(QUIET, pods=(WAITING,)), False, id="a spec that makes no sense"),
])
def test_when_nodes_are_of_use(asks: Spec | None, seen: Observed, use: bool) -> None:
    assert wanted(asks, view(fingerprint=FINGERPRINT), seen) is use
