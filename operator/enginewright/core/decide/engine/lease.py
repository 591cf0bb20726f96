"""One build for all that ask for the same engine at once: who may start it, and what the others wait for.

A lease is held exactly as long as its holder has a build Job. It is given up with the Job's end, and taken over from a
holder that is gone: no renewal for longer than the lease lasts, and no Job of this engine alive. Should two build all
the same, the store keeps the first engine that is published and the other build finds it there.
"""

from __future__ import annotations

from datetime import timedelta

from enginewright.core.context import PassContext
from enginewright.core.manifests import LEASE_SECONDS, build_lease, holder_identity
from enginewright.core.observed import LeaseView
from enginewright.core.plan import Action, ClaimBuild, ReleaseBuild, RenewBuild

RENEW_SECONDS = LEASE_SECONDS / 3
# How soon to ask again whether a holder gave up: success shows in the engine's record, which a watch reports.
ASK_AGAIN = 10.0


def builder(ctx: PassContext, fingerprint: str) -> LeaseView | None:
    """The lease of another object that builds this engine."""
    lease = ctx.observed.leases.get(fingerprint)
    if lease is None or _mine(ctx, lease):
        return None
    return lease if lease.building or not expired(ctx, lease) else None


def expired(ctx: PassContext, lease: LeaseView) -> bool:
    return ctx.now - lease.renewed > timedelta(seconds=lease.seconds)


def hold(ctx: PassContext, fingerprint: str, why: str) -> tuple[Action, ...]:
    """Claims the build, takes it over, or renews the claim when that is due. Ask :func:`builder` before."""
    lease = ctx.observed.leases.get(fingerprint)
    if lease is not None and _mine(ctx, lease):
        due = ctx.now - lease.renewed >= timedelta(seconds=RENEW_SECONDS)
        return (RenewBuild(name=lease.name, version=lease.version, time=ctx.now, why=why),) if due else ()
    manifest = build_lease(ctx.owner, fingerprint, ctx.spec.store.uri, ctx.now)
    return (ClaimBuild(manifest=manifest, version=lease.version if lease else "", why=why),)


def let_go(ctx: PassContext, kept: str = "") -> tuple[Action, ...]:
    """Gives up every claim of this object but the one for fingerprint ``kept``."""
    return tuple(
        ReleaseBuild(name=lease.name, version=lease.version, why="this object does not build it any more")
        for fingerprint, lease in sorted(ctx.observed.leases.items())
        if fingerprint != kept and _mine(ctx, lease)
    )


def _mine(ctx: PassContext, lease: LeaseView) -> bool:
    return lease.holder == holder_identity(ctx.owner)
