"""How a wanted manifest becomes an action: none where the child is as it should be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core import labels
from enginewright.core.context import PassContext
from enginewright.core.manifests import claim_template, routes
from enginewright.core.observed import Observed
from enginewright.core.placement import Placement
from enginewright.core.plan import Action, Apply, Delete
from enginewright.core.routing import API_VERSION, GRPC_ROUTE, Weights
from enginewright.core.servers import Server
from enginewright.core.spec.gateway import GatewaySpec

# No watch tells of a route, so that what follows on one needs another look.
ROUTE_CHECK = 1.0


def applied_as(observed: Observed, manifest: Mapping[str, Any]) -> str | None:
    """The manifest hash that the child was last applied with: None where there is no child, empty where another writer
    has changed since what ``manifest`` states."""
    key = f"{manifest['kind']}/{manifest['metadata']['name']}"
    found, live = observed.applied.get(key), observed.specs.get(key)
    return "" if found is not None and live is not None and not _holds(live, manifest["spec"]) else found


def _holds(found: Any, wanted: Any) -> bool:
    """Whether ``found``, into which the apiserver has filled defaults, has all that is ``wanted``, and a selector that
    is the very same. What others have added to a list stays there: server-side apply would not remove it either."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            found.get(key) == value if key == "selector" else key in found and _holds(found[key], value)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(_holds(one, item) for one in found) for item in wanted)
    return bool(found == wanted)


def apply_if_changed(
    manifest: Mapping[str, Any], applied: str | None, why: str, *, force: bool = True
) -> tuple[Apply, ...]:
    """An ``Apply`` of ``manifest``, unless what was last applied bears the same hash."""
    unchanged = manifest["metadata"]["annotations"][labels.MANIFEST_HASH] == applied
    return () if unchanged else (Apply(manifest=manifest, why=why, force=force),)


def applied(ctx: PassContext, manifest: Mapping[str, Any], why: str) -> tuple[Apply, ...]:
    """Of a child that is ours once it is there, and before that may have another owner."""
    found = applied_as(ctx.observed, manifest)
    return apply_if_changed(manifest, found, why, force=found is not None)


def claim(ctx: PassContext, placement: Placement) -> tuple[Action, ...]:
    """The template that pods claim their device with; nothing where the placement claims none."""
    template = claim_template(ctx.owner, placement)
    if template is None:
        return ()
    return apply_if_changed(template, applied_as(ctx.observed, template), "pods claim their device with it")


def write_routes(ctx: PassContext, gateway: GatewaySpec, weights: Weights, server: Server) -> tuple[Action, ...]:
    """``weights`` are shares of a hundred by revision, or of a fleet by class: what is written where it is not so."""
    seen = ctx.observed.gateway
    shares = ", ".join(f"{share} % to {target}" for target, share in sorted(weights.items()))
    actions: tuple[Action, ...] = ()
    for manifest in routes(ctx.owner, gateway, weights, server) if weights else ():
        kind = manifest["kind"]
        if kind in seen.missing:
            continue
        found = applied_as(ctx.observed, manifest) if seen.weights.get(kind) == weights else None
        actions += apply_if_changed(manifest, found, f"the Gateway sends {shares}", force=kind in seen.weights)
    return actions + (() if gateway.grpc_hostnames else remove_routes(ctx, set(seen.weights) & {GRPC_ROUTE}))


def remove_routes(ctx: PassContext, kinds: set[str]) -> tuple[Action, ...]:
    return tuple(
        Delete(api_version=API_VERSION, kind=kind, name=ctx.obj.name, why="the spec does not ask for it")
        for kind in sorted(kinds)
    )
