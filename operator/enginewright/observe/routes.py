"""What there is of the Gateway API's: routes and their weights, and who is ready behind each revision's Service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import Object
from enginewright.clients.resources import ENDPOINT_SLICE, GRPC_ROUTE, HTTP_ROUTE, Resource
from enginewright.core import labels
from enginewright.core.observed import ObjectView, Version
from enginewright.core.routing import GatewayView
from enginewright.core.spec.gateway import GatewaySpec
from enginewright.observe.fields import Raw, controlled_by, entries, labels_of, name_of, section
from enginewright.observe.reads import Reads
from enginewright.observe.views import version_of


async def observe_routes(reads: Reads, view: ObjectView, gateway: GatewaySpec | None) -> tuple[
    GatewayView, dict[Resource, list[Object]], dict[str, Version]
]:
    """With the routes themselves, by their kind, and the versions of all that have their label, also of those that the
    object has to adopt. Without ``gateway``, of routes that were asked for before.

    A cluster without these kinds is no error: that it lacks them is what the view says.
    """
    found: dict[Resource, list[Object]] = {}
    versions: dict[str, Version] = {}
    missing = []
    for resource in (HTTP_ROUTE, GRPC_ROUTE):
        try:
            listed = await reads.list_all(resource, view.namespace, labels=f"{labels.MODEL}={view.name}")
        except NotFoundError:
            if gateway is not None and (resource is HTTP_ROUTE or gateway.grpc_hostnames):
                missing.append(resource.kind)
        else:
            versions |= {f"{resource.kind}/{name_of(raw)}": version_of(raw) for raw in listed}
            found[resource] = [raw for raw in listed if controlled_by(raw, view.uid)]
    slices = await reads.list_all(
        ENDPOINT_SLICE, view.namespace, labels=f"{labels.MODEL}={view.name},{labels.REVISION}"
    )
    weights = {resource.kind: route_weights(raw, view.name) for resource, raws in found.items() for raw in raws}
    refused = tuple(said for resource, raws in found.items() for raw in raws for said in refusals(resource.kind, raw))
    ready = ready_addresses(slices)
    return GatewayView(weights=weights, missing=tuple(missing), ready=ready, refused=refused), found, versions


def refusals(kind: str, raw: Raw) -> list[str]:
    """What Gateways say against a route, a sentence each, in the order of its status."""
    found = []
    for parent in entries(raw, "status", "parents"):
        gateway = section(parent, "parentRef").get("name")
        for condition in entries(parent, "conditions"):
            if condition.get("type") in ("Accepted", "ResolvedRefs") and condition.get("status") == "False":
                said = f"{condition.get('reason')}: {condition.get('message')}".rstrip(".")
                found.append(f"Gateway {gateway} does not take {kind} {name_of(raw)} ({said}).")
    return found


def route_weights(raw: Raw, owner_name: str) -> dict[str, int]:
    """By revision. A backend that is no Service of a revision counts under its own name, so that it is not taken for
    one; absent weights are 1, says the API."""
    weights: Counter[str] = Counter()
    for rule in entries(raw, "spec", "rules"):
        for backend in entries(rule, "backendRefs"):
            name, weight = str(backend.get("name") or ""), backend.get("weight")
            weights[name.removeprefix(f"{owner_name}-")] += 1 if weight is None else int(weight)
    return dict(weights)


def ready_addresses(slices: Iterable[Raw]) -> dict[str, int]:
    """By revision, which the slice has from its Service. A pod with two addresses counts once."""
    pods: dict[str, set[str]] = {}
    for piece in slices:
        ready = pods.setdefault(labels_of(piece).get(labels.REVISION, ""), set())
        for endpoint in entries(piece, "endpoints"):
            state = section(endpoint, "conditions")
            if state.get("ready") is not False and not state.get("terminating"):
                ready.add(str(section(endpoint, "targetRef").get("name") or ""))
    return {revision: len(names) for revision, names in pods.items()}
