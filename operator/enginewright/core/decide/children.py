"""The actions that bring one child of the object to where it should be; none when it is there."""

from __future__ import annotations

from enginewright.core.context import PassContext, applied_as, apply_if_changed
from enginewright.core.decide import repair
from enginewright.core.decide.node_choice import preferred_nodes
from enginewright.core.manifests import (
    claim_template,
    deployment,
    pdb,
    service,
)
from enginewright.core.observed import DeploymentView, EngineRecord
from enginewright.core.placement import Placement
from enginewright.core.plan import Action, Apply, Delete, Scale

# An empty revision in the Service's selector means every revision of the model.
EVERY = ""


def route(ctx: PassContext, revision: str, why: str) -> tuple[Action, ...]:
    """The Service selects ``revision``, or :data:`EVERY`."""
    manifest = service(ctx.owner, revision)
    seen = ctx.observed.service
    applied = applied_as(ctx.observed, manifest)
    if seen is None or seen.activator or seen.revision != revision:
        applied = None
    return apply_if_changed(manifest, applied, why, force=seen is not None)


def protect(ctx: PassContext) -> tuple[Action, ...]:
    manifest = pdb(ctx.owner)
    applied = applied_as(ctx.observed, manifest)
    return apply_if_changed(manifest, applied, "voluntary disruptions must leave replicas", force=applied is not None)


def claim(ctx: PassContext, placement: Placement) -> tuple[Action, ...]:
    """The template that pods claim their device with; nothing where the placement claims none."""
    template = claim_template(ctx.owner, placement)
    if template is None:
        return ()
    applied = applied_as(ctx.observed, template)
    return apply_if_changed(template, applied, "pods claim their device with it")


def run(
    ctx: PassContext, revision: str, record: EngineRecord, placement: Placement, replicas: int, why: str
) -> tuple[Action, ...]:
    """The Deployment of ``revision``, and what its pods need. It is made with ``replicas``: without, it would begin
    with one, until the next pass has resized it.

    One that is there stays as it is: a revision was proven with the pods it has, so that what changes for the whole
    installation (an operator's upgrade, its settings) waits for the next revision and its analysis. Unless its replicas
    look for an engine that has been built again since: they would refuse the new one for ever.
    """
    seen = ctx.observed.deployment(revision)
    if seen and (seen.deleting or not repair.outdated(ctx.observed.pods, seen, record)):
        return () if seen.deleting else claim(ctx, placement)
    preferred = preferred_nodes(ctx, record, placement)
    # Stated again, since server-side apply takes away what is stated no more.
    manifest = deployment(ctx.owner, ctx.spec, record, placement, ctx.config, preferred=preferred,
                          replicas=seen.spec_replicas if seen else replicas, again=bool(seen))
    why = "its replicas look for an engine that has been built again since" if seen else why
    return (*claim(ctx, placement), Apply(manifest=manifest, why=why, force=bool(seen)))


def resize(deployed: DeploymentView | None, replicas: int, why: str) -> tuple[Action, ...]:
    if deployed is None or deployed.spec_replicas == replicas:
        return ()
    return (Scale(deployment=deployed.name, replicas=replicas, why=why),)


def remove(deployed: DeploymentView, why: str) -> Delete:
    """That very one: a leader that wakes up late leaves one of the same name alone that another has made since."""
    return Delete(api_version="apps/v1", kind="Deployment", name=deployed.name, uid=deployed.uid, why=why)
