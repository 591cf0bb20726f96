"""What a pass may stand on: rules on what it has seen and decided, without a call.

A look at memory costs nothing, and may be behind the cluster, of each kind by another moment. There are two ways to
make sure of it. **To confirm** it is to ask the apiserver, by name, for the version of everything that the look has
found: where all are as they were seen, they stood together at one moment. What memory has never heard of stays unknown,
so that nothing may stand on the absence of an object unless the apiserver itself refuses the write where there is one.
**To look afresh** is to list the children by their labels: that finds all, and makes the apiserver go through every
object of the kind in the namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from enginewright.core.conditions import find
from enginewright.core.context import Memory
from enginewright.core.observed import Elsewhere, ObjectView, Observed
from enginewright.core.plan import Delete, Plan, Scale
from enginewright.core.reasons import Condition
from enginewright.core.serving import pods_of
from enginewright.core.spec.fleet import is_fleet
from enginewright.observe.reads import Trail

# Blocks of status that say how things stand, and that the next pass says again from scratch.
PASSING: Final = frozenset({"observedGeneration", "conditions", "summary", "replicas", "readyReplicas", "autoscaling",
                            "quality"})
# So many objects are asked for by name; of more than these lists by labels cost less.
MOST: Final = 16


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen of the object and its children, and decided on that; the plan's status is plain data. ``trail`` is
    what memory gave; None of a look at the apiserver."""

    view: ObjectView
    observed: Observed
    plan: Plan
    trail: Trail | None = None

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
        before, status = self.view.status, self.plan.status
        return any(status.get(block) != before.get(block) for block in (status.keys() | before.keys()) - PASSING)

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
    def may_be_confirmed(self) -> bool:
        """Whether the plan may be carried out once the apiserver has confirmed what it was decided on. Nothing in it
        may stand on the absence of what memory does not know. So builds and whatever has a Job are looked at afresh: of
        a Job whose pod is not known it seems that it has left no result. So is what stops a revision, for which the
        endpoints of others have to be gone, and what serves with two of them. The Deployment counts its pods itself,
        and what status and the Service name has to be there. What is created is created where there is none: the
        apiserver refuses it otherwise."""
        if self.trail is None or len(self.trail) > MOST or self.view.deleting or is_fleet(self.view.spec):
            return False
        if self.plan.building or self.observed.jobs or _asks(self.observed.elsewhere):
            return False
        stops = any(isinstance(action, Delete) for action in self.plan.serving)
        return not stops and _one_revision(self.view, self.observed)

    @property
    def told_first(self) -> bool:
        """Whether status is the first thing that is written. The apiserver refuses it where the object has changed
        since, so that it need not be asked for the object before."""
        plan, before = self.plan, self.view.status
        return not plan.first and not plan.keeping and plan.ahead(before) != before


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
