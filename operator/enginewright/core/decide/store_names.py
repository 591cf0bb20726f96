"""What serves while another revision is asked for fetches its engine from a bucket as well. Where that is to be used by
another Secret or ServiceAccount now, its next replica would look for names that may be gone: for good, once what is
asked for was given up.

What is asked for is seen to by :func:`~enginewright.core.decide.children.run`. Beside a rollout that moves, the old
revision is left alone as long as all its replicas are ready: it goes soon, and an exchange would take room from both.
"""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.decide import children
from enginewright.core.decide.engine_step import EngineResult
from enginewright.core.decide.pin import Goal, made_again
from enginewright.core.decide.rollout import RolloutResult
from enginewright.core.decide.serving import Serving, pods_of
from enginewright.core.decide.world import World
from enginewright.core.observed import DeploymentView
from enginewright.core.plan import Apply, Delete


def with_store_names(world: World, engine: EngineResult, goal: Goal, serving: Serving,
                     rollout: RolloutResult) -> RolloutResult:
    """``engine`` is what the spec asks for."""
    left = serving.stable
    if left is None or world.spec.suspend or _seen_to(goal, left):
        return rollout
    kept = world.observed.kept.get(left.revision)
    made = made_again(world, engine, kept) if kept else None
    if made is None or made.engine.record is None or made.engine.placement is None:
        return rollout
    if not children.renamed(made.world.spec, left) or _leave(world, left, serving, rollout):
        return rollout
    actions = children.run(made.world, left.revision, made.engine.record, made.engine.placement, "")
    return replace(rollout, actions=rollout.actions + actions)


def _seen_to(goal: Goal, left: DeploymentView) -> bool:
    engine = goal.engine
    return engine.revision == left.revision and bool(engine.record and engine.placement)


def _leave(world: World, left: DeploymentView, serving: Serving, rollout: RolloutResult) -> bool:
    if any(isinstance(action, Delete) and action.name == left.name for action in rollout.actions):
        return True
    begins = any(isinstance(action, Apply) and action.manifest["kind"] == "Deployment" for action in rollout.actions)
    return (begins or len(serving.alive) > 1) and all(pod.ready for pod in pods_of(world.observed, left.revision))
