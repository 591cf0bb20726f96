"""How what is desired is brought about: which writes, in which order, and when a revision may stop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.conditions import yes
from enginewright.core.context import PassContext, read_spec
from enginewright.core.decide import target as targets
from enginewright.core.decide.converge import converge
from enginewright.core.decide.desired import Desired, Stops, Way
from enginewright.core.decide.engine.obtain import obtain
from enginewright.core.decide.quality import QualityResult
from enginewright.core.decide.scale import Contest
from enginewright.core.decide.server_step import informed, server_step
from enginewright.core.decide.source import resolve
from enginewright.core.observed import Observed
from enginewright.core.plan import Action, Apply, Delete, Scale
from enginewright.core.routing import HTTP_ROUTE, GatewayView
from enginewright.core.spec import Spec
from enginewright.core.status import RolloutStatus
from support.cluster import SPEC, Cluster, built

OLD, NEW = "old", "new"
GATEWAY = {"gateway": {"parentRefs": [{"name": "edge"}], "hostnames": ["m.example"]}}


class Side:
    """Two revisions side by side, both ready; ``names`` are theirs as OLD and NEW."""

    def __init__(self, **rollout: Any) -> None:
        asked = {"strategy": "Canary", "analysis": {"seconds": 0}, "autoPromote": False, **rollout}
        self.cluster = Cluster(spec={**SPEC, "replicas": 3, "rollout": asked})
        self.cluster.settle()
        before = self._revisions()
        self.cluster.edit(engine={"precision": "fp32"})
        self.cluster.operate()
        self.cluster.finish(built(built_at=self.cluster.now), of="build")
        for _ in range(8):
            self.cluster.step()
        (new,) = self._revisions() - before
        self.names = {OLD: before.pop(), NEW: new}
        self.observed = self.cluster.observe()

    def _revisions(self) -> set[str]:
        return {view.revision for view in self.cluster.observe().deployments}

    def silent(self, which: str) -> None:
        """No replica of that revision is ready."""
        pods = tuple(replace(pod, ready=pod.ready and pod.revision != self.names[which]) for pod in self.observed.pods)
        self.observed = replace(self.observed, pods=pods)

    def leads_to(self, which: str) -> None:
        """The Service, and every endpoint behind it."""
        service, revision = self.observed.service, self.names[which]
        assert service is not None
        endpoints = tuple(entry for entry in self.observed.endpoints if entry.revision == revision)
        self.observed = replace(self.observed, service=replace(service, revision=revision), endpoints=endpoints)

    def route_leads_to(self, **shares: int) -> None:
        weights = {self.names[which]: share for which, share in shares.items()}
        ready = dict.fromkeys(self.names.values(), 1)
        self.observed = replace(self.observed, gateway=GatewayView(weights={HTTP_ROUTE: weights}, ready=ready))

    def writes(self, **wanted: Any) -> tuple[Action, ...]:
        """What ``wanted`` leads to; ``replicas``, ``kept`` and ``weights`` are by OLD and NEW."""
        for name in ("replicas", "weights"):
            wanted[name] = {self.names[which]: number for which, number in wanted.get(name, {}).items()}
        wanted["kept"] = frozenset(self.names[which] for which in wanted.get("kept", ()))
        desired = Desired(progress=yes("Serving", ""), memory=RolloutStatus(), **wanted)
        return converge(self._target(self.observed), desired, Contest()).actions

    def stopped(self, **wanted: Any) -> set[str]:
        """The revisions whose Deployment goes, or loses its last replica."""
        names = {f"{self.cluster.name}-{revision}": which for which, revision in self.names.items()}
        found = set()
        for action in self.writes(**wanted):
            match action:
                case Delete(kind="Deployment", name=name) | Scale(deployment=name, replicas=0):
                    found.add(names[name])
        return found

    def _target(self, observed: Observed) -> targets.Target:
        view, config = self.cluster.view(), self.cluster.config
        spec = read_spec(view, config)
        assert isinstance(spec, Spec)
        ctx = PassContext.of(view, observed, config, spec)
        server = server_step(ctx)
        ctx = informed(ctx, server)
        return targets.choose(ctx, obtain(ctx, resolve(ctx), server), QualityResult())


@pytest.mark.parametrize(("stops", "leads", "gone"), [
    (Stops.NEVER, NEW, set()),
    (Stops.AT_ONCE, OLD, {OLD}),
    (Stops.SPARING, OLD, {OLD}),
    (Stops.DRAINED, OLD, set()),
    (Stops.DRAINED, NEW, {OLD}),
])
def test_a_revision_that_is_not_kept_stops_when_it_may(stops: Stops, leads: str, gone: set[str]) -> None:
    side = Side()
    side.leads_to(leads)
    assert side.stopped(kept=[NEW], stops=stops) == gone


@pytest.mark.parametrize(("stops", "gone"), [(Stops.SPARING, set()), (Stops.DRAINED, set()), (Stops.AT_ONCE, {OLD})])
def test_one_that_answers_is_spared_while_none_that_is_kept_does(stops: Stops, gone: set[str]) -> None:
    side = Side()
    side.leads_to(NEW)
    side.silent(NEW)
    assert side.stopped(kept=[NEW], stops=stops) == gone


def test_one_that_does_not_answer_is_not_spared() -> None:
    side = Side()
    side.silent(OLD)
    side.silent(NEW)
    assert side.stopped(kept=[NEW], stops=Stops.SPARING) == {OLD}


def test_nothing_stops_while_the_service_leaves_replicas_for_the_activator() -> None:
    side = Side()
    assert side.stopped(kept=[NEW], stops=Stops.AT_ONCE, replicas={NEW: 0}) == {OLD, NEW}
    assert side.stopped(kept=[NEW], stops=Stops.AT_ONCE, replicas={NEW: 0}, holds=Way.LEAVING) == set()


def test_one_that_a_route_still_leads_to_does_not_stop() -> None:
    side = Side(**GATEWAY)
    wanted = {"kept": [NEW], "stops": Stops.AT_ONCE, "weights": {NEW: 100}}
    side.route_leads_to(old=20, new=80)
    assert side.stopped(**wanted) == set()
    side.route_leads_to(new=100)
    assert side.stopped(**wanted) == {OLD}


@pytest.mark.parametrize(("surge", "first"), [(1, "grows"), (0, "shrinks")])
def test_room_is_made_first_where_there_is_none_to_spare(surge: int, first: str) -> None:
    side = Side(maxSurge=surge)
    now = {view.revision: view.spec_replicas for view in side.observed.deployments}
    old, new = now[side.names[OLD]], now[side.names[NEW]]
    scales = [action for action in side.writes(replicas={OLD: old - 1, NEW: new + 1}) if isinstance(action, Scale)]
    grows = scales[0].deployment.endswith(side.names[NEW])
    assert (len(scales), "grows" if grows else "shrinks") == (2, first)


@pytest.mark.parametrize(("ready", "selected"), [(True, NEW), (False, "")])
def test_the_service_selects_all_while_only_others_answer(ready: bool, selected: str) -> None:
    side = Side()
    side.leads_to(OLD)
    if not ready:
        side.silent(NEW)
    (service,) = [action.manifest for action in side.writes(selected=side.names[NEW])
                  if isinstance(action, Apply) and action.manifest["metadata"]["name"] == side.cluster.name]
    revision = service["spec"]["selector"].get("enginewright.io/revision", "")
    assert revision == (side.names[selected] if selected else "")


def test_while_rollouts_are_suspended_nothing_is_written() -> None:
    side = Side()
    side.cluster.edit(suspend=True)
    assert side.writes(kept=[NEW], stops=Stops.AT_ONCE, replicas={NEW: 3}, selected=side.names[NEW]) == ()
