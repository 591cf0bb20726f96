"""What a pass may stand on: rules on what it has seen and decided, without a call.

A look at memory costs nothing, and may be behind the cluster, of each kind by another moment. There are two ways to
make sure of it. **To confirm** it is to ask the apiserver, by name, for the version of everything that the look has
found: where all are as they were seen, they stood together at one moment. What memory has never heard of stays unknown,
so that nothing may stand on the absence of an object unless the apiserver itself refuses the write where there is one.
**To look afresh** is to list the children by their labels: that finds all, and makes the apiserver go through every
object of the kind in the namespace.

One thing that lasts needs neither: that an object's first revision has been proven. The Deployment counts its replicas
itself, so that one state of it says that all were available at one moment, and what has been proven stays so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from enginewright.core.conditions import find
from enginewright.core.context import Memory
from enginewright.core.observed import Elsewhere, ObjectView, Observed
from enginewright.core.plan import ABSENT, Apply, Create, Delete, Plan, Scale
from enginewright.core.reasons import Condition
from enginewright.core.serving import pods_of
from enginewright.core.spec.fleet import is_fleet
from enginewright.core.step import Step
from enginewright.observe.reads import Trail

# Blocks of status that say how things stand, and that the next pass says again from scratch.
PASSING: Final = frozenset({"observedGeneration", "conditions", "summary", "replicas", "readyReplicas", "autoscaling",
                            "quality"})
# Blocks that say which revision has been proven, and which were before.
PROOF: Final = frozenset({"rollout", "revisions"})
# So many objects are asked for by name; of more than these lists by labels cost less.
MOST: Final = 16


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen of the object and its children, and decided on that; the plan's status is plain data. ``trail`` is
    what memory gave; None of a look at the apiserver. ``untold`` is the status that an earlier pass has made sure of
    for this very spec, and not written yet. ``told_later`` says that this pass leaves it to a later one to write
    status."""

    view: ObjectView
    observed: Observed
    plan: Plan
    trail: Trail | None = None
    untold: Mapping[str, Any] | None = None
    told_later: bool = False

    @property
    def fresh(self) -> bool:
        return self.trail is None

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do but to say how things stand."""
        return not self.plan.actions and not self.lasting

    @property
    def lasting(self) -> bool:
        """Whether its status has something new that later passes build on."""
        return bool(self._news)

    @property
    def _before(self) -> Mapping[str, Any]:
        """The status that has been made sure of."""
        return self.view.status if self.untold is None else self.untold

    @property
    def _news(self) -> frozenset[str]:
        """The blocks of status in which there is something new that lasts."""
        before, status = self._before, self.plan.status
        return frozenset(block for block in (status.keys() | before.keys()) - PASSING
                         if status.get(block) != before.get(block))

    @property
    def scales(self) -> bool:
        """Whether a number of replicas is all there is to write, but for how things stand."""
        return bool(self.plan.actions) and self.may_be_remembered

    @property
    def may_be_remembered(self) -> bool:
        """Whether the plan may be carried out as it was decided on memory alone. Of each kind memory may be behind by
        another moment, so what it shows together may never have been. Therefore nothing that lasts is written to
        status, which the apiserver refuses where the object has changed since. And replicas alone are changed, of a
        Deployment that serves alone: the apiserver refuses that where this Deployment has changed since."""
        if self.lasting:
            return False
        serving = [one for one in self.observed.deployments if not one.deleting]
        scales = all(isinstance(action, Scale) for action in self.plan.actions)
        return not self.plan.actions or (scales and len(serving) == 1 and self.plan.question is None)

    @property
    def grows(self) -> bool:
        """Whether the plan only gives a Deployment more replicas, for which requests wait, so that the operator may
        carry it out without a look at the object. Where the object has changed unseen, a replica too many is the worst
        that comes of it: the apiserver then refuses the status that says so, and the next pass looks afresh."""
        before = {one.name: one.spec_replicas for one in self.observed.deployments}
        return self.scales and all(isinstance(one, Scale) and one.replicas > before.get(one.deployment, one.replicas)
                                   for one in self.plan.actions)

    @property
    def may_be_confirmed(self) -> bool:
        """Whether the plan may be carried out once the apiserver has confirmed what it was decided on. Nothing in it
        may stand on the absence of what memory does not know. So builds and whatever has a Job are looked at afresh: of
        a Job whose pod is not known it seems that it has left no result. So is what stops a revision, for which the
        endpoints of others have to be gone, and what serves with two of them. The Deployment counts its pods itself,
        and what status and the Service name has to be there. What is created is created where there is none: the
        apiserver refuses it otherwise."""
        if self.trail is None or self.view.deleting or is_fleet(self.view.spec):
            return False
        if self.proves_the_first:
            return True
        if len(self.trail) > MOST or self.plan.building or self.observed.jobs or _asks(self.observed.elsewhere):
            return False
        stops = any(isinstance(action, Delete) for action in self.plan.serving)
        return not stops and _one_revision(self.view, self.observed)

    @property
    def proves_the_first(self) -> bool:
        """Whether all that lasts in the plan is that the only revision has been proven, where none was before. That was
        true at the moment of the pod's or the Deployment's state that memory has, and stays true: a look that is late
        says it later, and none says it of a revision that never was ready. No traffic moves and nothing is stopped. So
        what was seen need not be asked for again, but for the object: what is kept of the revision belongs to it."""
        plan, before = self.plan, Memory.of(self._before).rollout
        proven = Memory.of(plan.status).rollout
        if plan.building or plan.serving or plan.question is not None or not self._news <= PROOF:
            return False
        if before is None or proven is None or not all(isinstance(action, Create) for action in plan.keeping):
            return False
        alive = [one.revision for one in self.observed.deployments if not one.deleting]
        news = (before.stable in (None, proven.stable) and before.step != Step.COMPLETE
                and proven.step in (Step.STARTING, Step.COMPLETE))
        alone = alive == [proven.stable] and _one_revision(self.view, self.observed)
        return news and alone and not (before.rolled_back or proven.rolled_back)

    @property
    def asks_for(self) -> Trail:
        """What the apiserver has to confirm, beside the object itself."""
        return self.trail if self.trail is not None and not self.proves_the_first else Trail(self.trail)

    @property
    def begins(self) -> bool:
        """Whether all there is to do is to make what a new object serves with, where there is none. An operator that is
        killed before status says so leaves to the next one what it found itself, a new object, and children that it
        would make: so status may wait until there is more to say."""
        plan = self.plan
        makes = all(isinstance(action, Apply) and action.version == ABSENT for action in plan.serving)
        new = not self.view.status.get("conditions") and plan.question is None
        return new and makes and bool(plan.serving) and not (plan.building or plan.keeping)

    @property
    def told_first(self) -> bool:
        """Whether status is the first thing that is written. The apiserver refuses it where the object has changed
        since, so that it need not be asked for the object before."""
        plan, before = self.plan, self.view.status
        return not self.told_later and not plan.first and not plan.keeping and plan.ahead(before) != before


def on_its_way(view: ObjectView) -> bool:
    """Whether its next passes look for what they might have missed."""
    conditions = view.status.get("conditions")
    return any(find(conditions, one).get("status") != "True" for one in (Condition.READY, Condition.ROLLOUT_COMPLETE))


def same(view: ObjectView, now: ObjectView) -> bool:
    return (view.uid, view.generation, view.deleting) == (now.uid, now.generation, now.deleting)


def _asks(elsewhere: Elsewhere | None) -> bool:
    """Whether another object's Job has yet to say what the server image has."""
    if elsewhere is None or elsewhere.job is None:
        return False
    return not (elsewhere.job.outcome and elsewhere.job.outcome.ok)


def _one_revision(view: ObjectView, observed: Observed) -> bool:
    """Whether there is one at most, with all pods that its Deployment counts, and nothing names another."""
    known = {deployment.revision for deployment in observed.deployments}
    rollout = Memory.of(view.status).rollout
    named = {observed.service.revision if observed.service else ""}
    named |= {rollout.stable or "", rollout.candidate or ""} if rollout else set()
    others = any(pod.revision not in known for pod in observed.pods)
    counted = all(len(pods_of(observed, one.revision)) >= one.replicas for one in observed.deployments)
    return len(observed.deployments) <= 1 and named - {""} <= known and not others and counted
