"""Binds the writes that route traffic to the objects that they were decided on.

An operator that was paused, or a request that was long on its way, may write after another operator has decided
otherwise. The apiserver refuses such a write (409), and the next pass decides again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeVar

from enginewright.core import labels
from enginewright.core.observed import DeploymentView, MemberView, Observed
from enginewright.core.plan import ABSENT, Action, Apply, Delete, Manifest, Plan, Scale
from enginewright.core.routing import GRPC_ROUTE, HTTP_ROUTE

# Nothing but the operator and the user writes these, so that their resourceVersion moves seldom.
ROUTING: Final = frozenset({"Service", HTTP_ROUTE, GRPC_ROUTE})

View = TypeVar("View", DeploymentView, MemberView)


def conditional(plan: Plan, observed: Observed) -> Plan:
    """``plan``, its writes bound. What it deletes it does not scale before: the deletion would be bound to what was
    there before the scaling, and so be refused."""
    deleted = {action.name for action in plan.serving if isinstance(action, Delete) and action.kind == "Deployment"}
    kept = (one for one in plan.serving if not (isinstance(one, Scale) and one.deployment in deleted))
    return replace(plan, serving=tuple(_bound(action, observed) for action in kept))


def _bound(action: Action, observed: Observed) -> Action:
    match action:
        case Apply(manifest=manifest) if manifest["kind"] in ROUTING:
            seen = observed.versions.get(f"{manifest['kind']}/{manifest['metadata']['name']}")
            return replace(action, uid=seen.uid, version=seen.version) if seen else replace(action, version=ABSENT)
        case Apply(manifest=manifest) if manifest["kind"] == "Deployment" and not _deployed(manifest, observed):
            # One that was not seen may be there all the same, where a watch has lost its event.
            return replace(action, version=ABSENT)
        case Scale(deployment=name) | Delete(kind="Deployment", name=name):
            if deployed := _named(observed.deployments, name):
                return _as_it_was(action, deployed)
        case Delete(kind=labels.KIND, name=name):
            if member := _named(observed.fleet.members, name):
                return _as_it_was(action, member)
    if isinstance(action, Delete) and (seen := observed.versions.get(f"{action.kind}/{action.name}")):
        return replace(action, uid=seen.uid, version=seen.version)
    return action


def _as_it_was(action: Scale | Delete, seen: DeploymentView | MemberView) -> Action:
    """A Deployment's resourceVersion moves with its status, several times a second while pods start: what counts is the
    generation, which only its spec moves."""
    return replace(action, uid=seen.uid, version=seen.version, generation=seen.generation)


def _deployed(manifest: Manifest, observed: Observed) -> bool:
    """Whether it was seen, be it one that the object has to adopt."""
    name = str(manifest["metadata"]["name"])
    return _named(observed.deployments, name) is not None or f"Deployment/{name}" in observed.versions


def _named(found: Iterable[View], name: str) -> View | None:
    return next((view for view in found if view.name == name), None)
