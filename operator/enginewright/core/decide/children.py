"""The actions that bring one child of the object to where it should be; none when it is there."""

from __future__ import annotations

from enginewright.core.decide import repair
from enginewright.core.decide.node_choice import preferred_nodes
from enginewright.core.decide.world import World, applied_as, apply_if_changed
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


def route(world: World, revision: str, why: str) -> tuple[Action, ...]:
    """The Service selects ``revision``, or :data:`EVERY`."""
    manifest = service(world.owner, revision)
    seen = world.observed.service
    applied = applied_as(world.observed, manifest)
    if seen is None or seen.activator or seen.revision != revision:
        applied = None
    return apply_if_changed(manifest, applied, why, force=seen is not None)


def protect(world: World) -> tuple[Action, ...]:
    manifest = pdb(world.owner)
    applied = applied_as(world.observed, manifest)
    return apply_if_changed(manifest, applied, "voluntary disruptions must leave replicas", force=applied is not None)


def claim(world: World, placement: Placement) -> tuple[Action, ...]:
    """The template that pods claim their device with; nothing where the placement claims none."""
    template = claim_template(world.owner, placement)
    if template is None:
        return ()
    applied = applied_as(world.observed, template)
    return apply_if_changed(template, applied, "pods claim their device with it")


def run(
    world: World, revision: str, record: EngineRecord, placement: Placement, replicas: int, why: str
) -> tuple[Action, ...]:
    """The Deployment of ``revision``, and what its pods need. It is made with ``replicas``: without, it would begin
    with one, until the next pass has resized it.

    One that is there stays as it is: a revision was proven with the pods it has, so that what changes for the whole
    installation (an operator's upgrade, its settings) waits for the next revision and its analysis. Unless its replicas
    look for an engine that has been built again since: they would refuse the new one for ever.
    """
    seen = world.observed.deployment(revision)
    if seen and (seen.deleting or not repair.outdated(world.observed.pods, seen, record)):
        return () if seen.deleting else claim(world, placement)
    preferred = preferred_nodes(world, record, placement)
    # Stated again, since server-side apply takes away what is stated no more.
    manifest = deployment(world.owner, world.spec, record, placement, world.config, preferred=preferred,
                          replicas=seen.spec_replicas if seen else replicas, again=bool(seen))
    why = "its replicas look for an engine that has been built again since" if seen else why
    return (*claim(world, placement), Apply(manifest=manifest, why=why, force=bool(seen)))


def resize(deployed: DeploymentView | None, replicas: int, why: str) -> tuple[Action, ...]:
    if deployed is None or deployed.spec_replicas == replicas:
        return ()
    return (Scale(deployment=deployed.name, replicas=replicas, why=why),)


def remove(deployed: DeploymentView, why: str) -> Delete:
    """That very one: a leader that wakes up late leaves one of the same name alone that another has made since."""
    return Delete(api_version="apps/v1", kind="Deployment", name=deployed.name, uid=deployed.uid, why=why)
