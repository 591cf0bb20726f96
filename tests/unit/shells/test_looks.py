"""What a pass looks at: memory first, and the apiserver before it does anything but scale."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from enginewright.act.report import plain
from enginewright.clients.errors import ClientError, ConflictError, NotFoundError, TransientError
from enginewright.clients.resources import POD
from enginewright.core.comparison import Question
from enginewright.core.config import OperatorConfig
from enginewright.core.observed import Elsewhere, JobView, ObjectView, Observed, ServiceView, Version
from enginewright.core.plan import ABSENT, Action, Apply, Create, Delete, Plan, Scale
from enginewright.observe.keys import Key
from enginewright.observe.reads import Trail
from enginewright.reconcile.exposed import Exposed
from enginewright.reconcile.known import Known
from enginewright.reconcile.looks import Look
from enginewright.reconcile.passes import LATEST, TRIES, Parts, Reconciler
from support.cluster import SPEC, Cluster

KEY = Key("prod", "minilm")
DELETES = Delete(api_version="v1", kind="Pod", name="p", why="it is late")
REVISION = "8f6740b9"
CREATES = Create(manifest={"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}, why="a build")
SPENT = Delete(api_version="batch/v1", kind="Job", name="j", why="it failed", spent=True)
SCALES = Scale(deployment=f"minilm-{REVISION}", replicas=0, why="no request comes", uid="u", version="7", generation=1)
GROWS = replace(SCALES, replicas=2, why="requests wait")


@dataclass
class Bench:
    """A reconciler whose memory and apiserver say what they are told to; ``asked`` lists what it read from where."""

    remembered: ObjectView | None
    there: ObjectView | None
    plans: dict[bool, Plan]
    error: ClientError | None = None
    revisions: int = 1
    jobs: bool = True
    unknown: str = ""
    kept: bool = True
    refused: ClientError | None = None
    crowded: list[bool] = field(default_factory=list)
    urgent: bool = False
    confirms: list[bool] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    done: list[Action] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    forgotten: list[Key] = field(default_factory=list)

    def __post_init__(self) -> None:
        cluster = Cluster(spec=SPEC)
        cluster.settle()
        seen = cluster.observe()
        observed = replace(seen, deployments=seen.deployments * self.revisions, jobs=seen.jobs if self.jobs else ())
        observed = without(observed, self.unknown)

        async def find(_namespace: str, _name: str, *, fresh: bool = True) -> ObjectView | None:
            self.asked.append("object" if fresh else "remembered object")
            return self.there if fresh else self.remembered

        async def observe(_view: object, _signals: object, trail: Trail | None) -> Observed:
            self.asked.append("children" if trail is None else "remembered children")
            self.looks_fresh = trail is None
            return observed

        async def confirm(_view: object, _trail: Trail, *, itself: bool = True) -> bool:
            self.asked.append("versions, its own" if itself else "versions")
            return self.confirms.pop(0) if self.confirms else False

        async def execute(_namespace: str, actions: tuple[Action, ...], _log: object) -> None:
            if self.error is not None:
                raise self.error
            self.done += actions

        async def status(view: ObjectView, wanted: Mapping[str, Any]) -> ObjectView:
            if self.refused is not None:
                raise self.refused
            self.written.append(view.resource_version)
            written = self.kept and wanted != view.status
            return replace(view, status=wanted, resource_version=f"{view.resource_version}+") if written else view

        async def nothing(*_: object) -> None:
            pass

        parts: Any = SimpleNamespace(
            world=SimpleNamespace(find=find, observe=observe, confirm=confirm, now=lambda: cluster.now,
                                  forget=self.forgotten.append),
            actor=SimpleNamespace(execute=execute), reporter=SimpleNamespace(status=status, events=nothing),
            signals=SimpleNamespace(window=lambda _: None, watch=lambda *_: None, forget=nothing,
                                    recommend=lambda *_: None),
            known=Known(), exposed=Exposed(), config=OperatorConfig(),
            looked=lambda _: None, decide=lambda *_: self.plans[self.looks_fresh], urgent=lambda: self.urgent,
            crowded=lambda: bool(self.crowded) and self.crowded[0])
        self.reconciler = Reconciler(cast(Parts, parts))

    def passes(self) -> list[str]:
        """One pass; what it read."""
        self.asked.clear()
        asyncio.run(self.reconciler.reconcile(KEY))
        return self.asked


def without(seen: Observed, unknown: str) -> Observed:
    match unknown:
        case "revision":  # that the Service selects
            return replace(seen, service=ServiceView(name="minilm", revision="another"))
        case "pod":
            return replace(seen, pods=())
        case "answer":
            return replace(seen, elsewhere=Elsewhere(name="j", job=JobView(name="j", uid="u", created=seen.now)))
        case "stable":
            return replace(seen, deployments=(), pods=(), service=None)
        case _:
            return seen


READY, AWAITED = (tuple({"type": one, "status": status, "reason": "Fine"} for one in ("Ready", "RolloutComplete"))
                  for status in ("True", "False"))
ROLLOUT: Final = {"stable": REVISION, "step": "Complete"}


def view(version: str, ready: bool = True) -> ObjectView:
    status = {"conditions": list(READY if ready else AWAITED), "rollout": ROLLOUT}
    return replace(Cluster(spec=SPEC).view(), resource_version=version, status=status)


def bench(remembered: Plan, fresh: Plan | None = None, **fields: Any) -> Bench:
    return Bench(view("1"), view("2"), {False: remembered, True: fresh or remembered}, **fields)


def plan(*actions: Action, **status: Any) -> Plan:
    return replace(Cluster(spec=SPEC).plan(), building=(), keeping=(), serving=actions, events=(),
                   status={"conditions": list(READY), "rollout": ROLLOUT, **status})


def test_a_pass_that_finds_nothing_to_do_reads_nothing_from_the_apiserver() -> None:
    here = bench(plan())
    assert here.passes() == ["remembered object", "remembered children"]
    assert here.written == ["1"], "the apiserver refuses the status if the object has changed since"


def test_replicas_are_scaled_on_what_is_remembered() -> None:
    here = bench(plan(SCALES))
    assert here.passes() == ["remembered object", "remembered children", "object"]
    assert here.done == [SCALES]


def test_more_replicas_are_asked_for_at_once_as_requests_wait() -> None:
    here = bench(plan(GROWS))
    assert here.passes() == ["remembered object", "remembered children"]
    assert here.done == [GROWS]


def test_fewer_replicas_of_another_deployment_keep_those_that_grow_waiting() -> None:
    another = replace(GROWS, deployment="another")
    assert bench(plan(GROWS, another)).passes() == ["remembered object", "remembered children", "object"]


@pytest.mark.parametrize("urgent", [False, True], ids=["said at once", "said later"])
def test_where_status_cannot_say_that_replicas_grew_the_next_look_is_at_the_apiserver(urgent: bool) -> None:
    """The object has changed, and memory does not know: its new spec may ask for other replicas."""
    here = bench(plan(GROWS), plan(), urgent=urgent)
    here.refused = ConflictError("another version", status=409)
    if urgent:
        here.passes()
        here.urgent = False
        with pytest.raises(ConflictError):
            here.passes()
        assert here.asked[:2] == ["object", "children"], "this pass stands on no memory either"
    else:
        with pytest.raises(ConflictError):
            here.passes()
    here.refused = None
    assert here.passes()[:2] == ["object", "children"]
    assert here.done == [GROWS]


def test_replicas_of_two_revisions_depend_on_each_other_and_are_not_scaled_on_what_is_remembered() -> None:
    here = bench(plan(GROWS), revisions=2)
    assert here.passes() == ["remembered object", "remembered children", "object", "children", "object"]


def test_nor_are_those_of_a_revision_that_is_analysed() -> None:
    question = Question(key="k", stable="a", candidate="b", model="m")
    here = bench(replace(plan(GROWS), question=question))
    assert here.passes()[2:4] == ["object", "children"]


@pytest.mark.parametrize("changed", [
    {"source": {"attempts": 1}}, {"build": {"failures": 1}}, {"rollout": {"rolledBack": {"revision": "x"}}},
    {"revisions": [{"revision": "x"}]}, {"pin": {"revision": "x"}},
    {"placement": {"accelerator": "gpu"}}, {"fingerprint": "f"}, {"anything": "new"},
], ids=lambda one: next(iter(one)))
def test_nothing_that_lasts_is_written_on_what_is_remembered(changed: dict[str, Any]) -> None:
    """A Job whose end is seen before that of its pod looks as if it had left no result."""
    here = bench(plan(**changed), plan())
    assert here.passes() == ["remembered object", "remembered children", "object", "children"]
    assert here.written == ["2"]


def test_how_things_stand_is_written_on_what_is_remembered() -> None:
    here = bench(plan(summary={"reason": "x"}, readyReplicas=1, autoscaling={"queueDepth": 3}))
    assert here.passes() == ["remembered object", "remembered children"]


FIGURES: Final = {"autoscaling": {"queueDepth": 3}}


def test_while_the_queues_of_others_rise_how_things_stand_is_said_later() -> None:
    here = bench(plan(**FIGURES), urgent=True)
    assert (here.passes(), here.written) == (["remembered object", "remembered children"], [])
    here.urgent = False
    here.passes()
    assert here.written == ["1"]


@pytest.mark.parametrize("asked", [plan(DELETES, **FIGURES), plan(pin={"revision": "x"}),
                                   plan(conditions=list(AWAITED))], ids=["acts", "lasts", "serves no more"])
def test_but_whatever_is_more_than_that_is_said_at_once(asked: Plan) -> None:
    here = bench(asked, urgent=True)
    here.passes()
    assert here.written


def test_how_things_stand_waits_for_some_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    here = bench(plan(**FIGURES), urgent=True)
    here.passes()
    monkeypatch.setattr("enginewright.reconcile.passes.HELD", 0.0)
    here.passes()
    assert here.written == ["1"]


@pytest.mark.parametrize("later", [
    replace(view("2"), generation=2), replace(view("2"), uid="another"), replace(view("2"), deleting=True),
], ids=["another spec", "made again", "going"])
def test_a_scale_for_an_object_that_has_changed_is_decided_again(later: ObjectView) -> None:
    here = bench(plan(SCALES), plan())
    here.there = later
    assert here.passes() == ["remembered object", "remembered children", "object", "children"]
    assert here.done == []


def test_a_deployment_that_is_gone_is_no_refusal_to_tell() -> None:
    here = bench(plan(SCALES))
    here.error = NotFoundError("gone", status=404)
    with pytest.raises(NotFoundError):
        here.passes()
    assert here.written == [], "that it is gone is all there is to say"


def test_while_a_model_is_on_its_way_memory_is_trusted_for_a_while_after_a_fresh_look(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """What looks again now and then for what it might have missed finds it."""
    here = bench(plan())
    here.remembered, here.there = view("1", ready=False), view("2", ready=False)
    assert here.passes() == ["remembered object", "object", "children"]
    assert here.passes() == ["remembered object", "remembered children"]
    monkeypatch.setattr("enginewright.reconcile.passes.TRUST", 0.0)
    assert here.passes() == ["remembered object", "remembered children"], "for this one is looked at in two seconds"
    monkeypatch.setattr("enginewright.reconcile.passes.DOUBTED", math.inf)
    assert here.passes() == ["remembered object", "object", "children"]


def test_of_a_settled_model_that_is_on_its_way_again_memory_is_trusted_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise fifty models that scale at one moment would all be looked at afresh then."""
    here = bench(plan())
    here.passes()
    here.remembered, here.there = view("1", ready=False), view("2", ready=False)
    assert here.passes() == ["remembered object", "remembered children"]
    monkeypatch.setattr("enginewright.reconcile.passes.TRUST", 0.0)
    monkeypatch.setattr("enginewright.reconcile.passes.DOUBTED", math.inf)
    assert here.passes() == ["remembered object", "object", "children"]


def test_nothing_can_have_been_missed_of_a_new_object() -> None:
    here = bench(plan())
    here.remembered = replace(view("1"), status={"observedGeneration": 0, "rollout": ROLLOUT})
    assert here.passes() == ["remembered object", "remembered children"]


APPLIES = Apply(manifest={"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}, why="a revision")


def test_what_the_apiserver_confirms_is_acted_on_without_a_look_at_all_children() -> None:
    here = bench(plan(APPLIES), jobs=False, confirms=[True])
    assert here.passes() == ["remembered object", "remembered children", "versions, its own"]
    assert here.done == [APPLIES]


TOLD: Final = {"fingerprint": "f"}
QUESTION: Final = Question(key="k", stable="a", candidate="b", model="m")


def test_the_object_is_not_asked_for_where_the_write_of_status_would_find_that_it_has_changed() -> None:
    here = bench(plan(APPLIES, **TOLD), jobs=False, confirms=[True])
    assert here.passes() == ["remembered object", "remembered children", "versions"]
    assert (here.done, here.written[0]) == ([APPLIES], "1")


def test_nothing_is_done_for_an_object_whose_status_the_apiserver_refuses_as_it_has_changed() -> None:
    here = bench(plan(APPLIES, **TOLD), jobs=False, confirms=[True], refused=ConflictError("changed", status=409))
    with pytest.raises(ConflictError):
        here.passes()
    assert here.done == []
    here.refused = None
    assert here.passes()[:2] == ["object", "children"]


@pytest.mark.parametrize(("there", "done"), [
    (lambda: view("2"), [APPLIES]), (lambda: replace(view("2"), generation=2), []),
    (lambda: replace(view("2"), deleting=True), []), (lambda: None, []),
], ids=["the same", "another spec", "going", "gone"])
def test_the_object_is_asked_for_where_no_status_was_written_after_all(
    there: Callable[[], ObjectView | None], done: list[Action]
) -> None:
    """A CRD that lacks a field of status drops it."""
    here = bench(plan(APPLIES, **TOLD), jobs=False, confirms=[True], kept=False)
    here.there = there()
    with pytest.raises(ConflictError) if not done else contextlib.nullcontext():
        here.passes()
    assert (here.asked[2:], here.done) == (["versions", "object"], done)


@pytest.mark.parametrize("before", [{"keeping": (CREATES,)}, {"building": (SPENT,)}], ids=["keeping", "first"])
def test_the_object_is_asked_for_where_something_is_written_before_status(before: dict[str, Any]) -> None:
    look = Look(view=view("1"), observed=Cluster(spec=SPEC).observe(), plan=replace(plan(APPLIES, **TOLD), **before))
    assert not look.told_first


def test_so_is_what_lasts_in_status() -> None:
    here = bench(plan(revisions=[{"revision": "x"}]), jobs=False, confirms=[True])
    assert here.passes() == ["remembered object", "remembered children", "versions"]


def until_first_kept(cluster: Cluster) -> Look:
    """The look of the pass that promotes an object's first revision, at memory with everything on its trail."""
    for _ in range(100):
        plan, observed = cluster.plan(), cluster.observe()
        if plan.keeping:
            trail = Trail()
            trail.seen = {(POD, "prod", "one"): Version("u", "1")}
            return Look(view=cluster.view(), observed=observed, trail=trail,
                        plan=replace(plan, status=plain(plan.status)))
        cluster.operate()
        cluster.settle_jobs()
        cluster.controllers()
        cluster.wait(1)
    pytest.fail("no revision was ever kept")


@pytest.mark.parametrize("spec", [SPEC, {**SPEC, "replicas": 2}], ids=["one replica", "two"])
def test_that_the_first_revision_is_proven_needs_no_confirmation_but_of_the_object(spec: dict[str, Any]) -> None:
    """What one state of the Deployment says was true once, and stays so. The record belongs to the object."""
    look = until_first_kept(Cluster(spec=spec))
    assert look.may_be_confirmed
    assert len(look.asks_for) == 0
    assert not look.told_first, "the operator reads the object before it writes the record"


def with_status(look: Look, **blocks: Any) -> Look:
    return replace(look, plan=replace(look.plan, status={**look.plan.status, **blocks}))


def one_before(look: Look, **rollout: Any) -> Look:
    return replace(look, view=replace(look.view, status={**look.view.status, "rollout": rollout}))


def another_deployment(look: Look, **changes: Any) -> Look:
    (there,) = look.observed.deployments
    return replace(look, observed=replace(look.observed, deployments=(there, replace(there, **changes))))


@pytest.mark.parametrize("spoilt", [
    lambda look: with_status(look, engine={"fingerprint": "f"}),
    lambda look: with_status(look, build={"failures": 1}),
    lambda look: with_status(look, rollout={**look.plan.status["rollout"], "stable": "another"}),
    lambda look: with_status(look, rollout={**look.plan.status["rollout"], "step": "Draining"}),
    lambda look: one_before(look, stable="another", candidate=REVISION),
    lambda look: one_before(look, rolledBack={"revision": "x", "reason": "r", "message": "m", "time": "t"}),
    lambda look: another_deployment(look, name="d", revision="another"),
    lambda look: replace(look, observed=replace(look.observed, pods=())),
    lambda look: replace(look, observed=replace(look.observed, deployments=())),
    lambda look: replace(look, observed=replace(look.observed, service=ServiceView(name="m", revision="another"))),
    lambda look: replace(look, plan=replace(look.plan, serving=(APPLIES,))),
    lambda look: replace(look, plan=replace(look.plan, building=(CREATES,))),
    lambda look: replace(look, plan=replace(look.plan, keeping=(*look.plan.keeping, DELETES))),
    lambda look: replace(look, plan=replace(look.plan, question=QUESTION)),
], ids=["engine", "build", "another is proven", "another drains", "one was proven", "one was given up",
        "two deployments", "its pod is unknown", "its deployment is unknown", "the service names another", "serves",
        "builds", "forgets", "analyses"])
def test_all_else_that_lasts_is_confirmed_or_looked_at_afresh(spoilt: Callable[[Look], Look]) -> None:
    look = until_first_kept(Cluster(spec=SPEC))
    assert look.proves_the_first
    spoilt_look = spoilt(look)
    assert not spoilt_look.proves_the_first
    assert spoilt_look.asks_for is spoilt_look.trail


def test_what_has_changed_meanwhile_is_decided_again() -> None:
    here = bench(plan(APPLIES), jobs=False, confirms=[False, True])
    assert here.passes() == ["remembered object", "remembered children", "versions, its own"] * 2
    assert here.done == [APPLIES]


def test_what_does_not_keep_still_is_looked_at_afresh() -> None:
    here = bench(plan(APPLIES), jobs=False)
    assert here.passes() == [*["remembered object", "remembered children", "versions, its own"] * TRIES,
                             "remembered object", "remembered children", "object", "children", "object"]
    assert here.done == [APPLIES]


@pytest.mark.parametrize("fields", [
    {"jobs": True}, {"revisions": 2}, {"unknown": "revision"}, {"unknown": "pod"}, {"unknown": "stable"},
    {"unknown": "answer"},
], ids=str)
def test_where_memory_may_lack_something_the_children_are_looked_at(fields: dict[str, Any]) -> None:
    """The pod of a Job that has ended; what a second revision has; a Deployment that the Service or status names; pods
    that the Deployment counts; the Job of another object that has not answered yet."""
    here = bench(plan(APPLIES), **{"jobs": False, **fields}, confirms=[True])
    assert here.passes() == ["remembered object", "remembered children", "object", "children", "object"]


@pytest.mark.parametrize("asked", [plan(DELETES), replace(plan(), building=(CREATES,))], ids=["stops", "builds"])
def test_nothing_is_stopped_or_built_on_what_was_confirmed(asked: Plan) -> None:
    """That may stand on what is not there: endpoints of a revision, or a Job's pod."""
    here = bench(asked, jobs=False, confirms=[True])
    assert here.passes()[2:4] == ["object", "children"]



@pytest.mark.parametrize("remembered", [(DELETES,), (CREATES,), (SCALES, DELETES)], ids=["delete", "create", "both"])
def test_everything_else_is_decided_again_on_what_the_apiserver_has(remembered: tuple[Action, ...]) -> None:
    here = bench(plan(*remembered), plan(CREATES))
    assert here.passes() == ["remembered object", "remembered children", "object", "children", "object"]
    assert here.done == [CREATES]
    assert set(here.written) == {"2"}


def test_what_only_memory_asked_for_is_not_done() -> None:
    here = bench(plan(DELETES), plan())
    here.passes()
    assert here.done == []


@pytest.mark.parametrize("error", [TransientError("no"), RuntimeError("a defect")])
def test_after_a_failure_memory_is_not_trusted_until_a_pass_succeeds(error: Exception) -> None:
    here = bench(plan(SCALES))
    here.error = cast(ClientError, error)
    with pytest.raises(type(error)):
        here.passes()
    here.error = None
    assert here.passes() == ["object", "children", "object"]
    assert here.passes()[:2] == ["remembered object", "remembered children"]


def test_an_object_that_is_not_remembered_is_asked_for_before_it_is_forgotten() -> None:
    here = bench(plan())
    here.remembered = None
    assert here.passes() == ["remembered object", "object", "children"]
    assert here.forgotten == []
    here.there = None
    assert here.passes() == ["remembered object", "object"]
    assert here.forgotten == [KEY]


def test_an_object_that_went_between_the_two_looks_is_forgotten() -> None:
    here = bench(plan(CREATES))
    here.there = None
    assert here.passes() == ["remembered object", "remembered children", "object"]
    assert (here.done, here.written, here.forgotten) == ([], [], [KEY])


MAKES: Final = replace(APPLIES, version=ABSENT)


def newcomer(*actions: Action, crowded: bool = True, **fields: Any) -> Bench:
    """A new object, for which ``actions`` are to be done."""
    here = bench(plan(*actions, conditions=list(AWAITED), **TOLD), jobs=False, crowded=[crowded], **fields)
    here.remembered = here.there = replace(view("1"), status={"observedGeneration": -1})
    return here


def later(here: Bench, *actions: Action, ready: bool = False, crowded: bool = True, **status: Any) -> Bench:
    """``here`` at its next pass."""
    asked = plan(*actions, conditions=list(READY if ready else AWAITED), **{**TOLD, **status})
    here.plans = {False: asked, True: asked}
    here.crowded = [crowded]
    return here


def test_where_many_are_new_what_a_new_object_serves_with_is_made_before_status_says_so() -> None:
    here = newcomer(MAKES, confirms=[True])
    assert here.passes() == ["remembered object", "remembered children", "versions, its own"]
    assert (here.done, here.written) == ([MAKES], [])
    assert later(here).passes() == ["remembered object", "remembered children"]
    assert here.written == [], "there is no more to say, and others are new"
    assert later(here, ready=True).passes() == ["remembered object", "remembered children"]
    assert here.written == ["1"], "one write for all"


@pytest.mark.parametrize("patience", [60.0, 0.0], ids=["the others are done", "it has waited"])
def test_status_of_a_new_object_waits_for_a_few_seconds_at_most(
    patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = newcomer(MAKES, confirms=[True])
    here.passes()
    monkeypatch.setattr("enginewright.reconcile.passes.LATEST", patience)
    later(here, crowded=not patience).passes()
    assert here.written == ["1"]


def test_a_pass_is_due_when_status_has_waited_for_long() -> None:
    here = newcomer(MAKES, confirms=[True])
    assert 0 < (asyncio.run(here.reconciler.reconcile(KEY)) or 0) <= LATEST


def test_where_no_other_object_is_new_status_comes_first() -> None:
    here = newcomer(MAKES, crowded=False, confirms=[True])
    assert here.passes() == ["remembered object", "remembered children", "versions"]
    assert here.written[0] == "1"


@pytest.mark.parametrize("action", [APPLIES, SCALES, DELETES, CREATES], ids=lambda one: type(one).__name__)
def test_status_comes_first_where_more_is_done_than_to_make_what_is_not_there(action: Action) -> None:
    look = Look(view=replace(view("1"), status={}), observed=Cluster(spec=SPEC).observe(), plan=plan(MAKES, action))
    assert not look.begins
    assert replace(look, plan=plan(MAKES)).begins
    assert not replace(look, plan=plan(MAKES), view=view("1")).begins, "of an object that status says something of"


@pytest.mark.parametrize("now", [
    replace(view("1"), status={}, generation=2), replace(view("1"), status={}, uid="another"), view("1"),
], ids=["another spec", "made again", "another operator has written"])
def test_what_was_made_sure_of_counts_for_this_very_object_and_spec(now: ObjectView) -> None:
    here = newcomer(MAKES, confirms=[True])
    here.passes()
    here.remembered = here.there = now
    later(here, rollout={"stable": "x"}, ready=True).passes()
    assert here.asked[2] == "versions", "all of it is confirmed before it is written"


def test_what_fails_to_be_made_is_told_at_once() -> None:
    here = newcomer(MAKES, confirms=[True])
    here.error = TransientError("no")
    with pytest.raises(TransientError):
        here.passes()
    assert here.written == ["1"]


def test_an_operator_that_is_killed_before_status_says_so_leaves_all_that_the_next_one_needs() -> None:
    """The next one finds a new object and its children, and promotes the same revision."""
    before = Cluster(spec=SPEC)
    before.settle()
    source = {**SPEC["source"], "digest": before.status["source"]["digest"]}
    cluster = Cluster(spec={**SPEC, "source": source}, records=before.records, stored=before.stored)
    look = until_first_kept(cluster)
    cluster.status = {}
    again = cluster.plan()
    assert again.keeping == look.plan.keeping
    assert (again.serving, again.building) == ((), ())
    for block in ("fingerprint", "rollout", "revisions", "source"):
        assert plain(again.status)[block] == look.plan.status[block]
