"""The Service by which monitors reach the candidate with the live requests that they sample: there while a candidate is
analysed by them, and no longer."""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.context import PassContext, applied_as, apply_if_changed
from enginewright.core.decide.position import ANALYSING, WAITING
from enginewright.core.decide.rollout import RolloutResult
from enginewright.core.manifests.service import mirror_name, mirror_service
from enginewright.core.plan import Action, Delete


def with_mirror(ctx: PassContext, result: RolloutResult) -> RolloutResult:
    """``result``, and the Service where it is needed; without it where it is not."""
    actions = _service(ctx, result)
    return replace(result, actions=(*result.actions, *actions)) if actions else result


def _service(ctx: PassContext, result: RolloutResult) -> tuple[Action, ...]:
    name, candidate, asked = mirror_name(ctx.obj.name), result.memory.candidate, result.question
    # A rollout that is suspended asks nothing.
    if result.memory.step in (ANALYSING, WAITING) and candidate and asked is not None and asked.mirror:
        manifest = mirror_service(ctx.owner, candidate)
        applied = applied_as(ctx.observed, manifest)
        return apply_if_changed(manifest, applied, "live requests are sent to the candidate as well",
                                force=applied is not None)
    if f"Service/{name}" not in ctx.observed.applied:
        return ()
    return (Delete(api_version="v1", kind="Service", name=name, why="no candidate is analysed"),)
