"""The two conditions that people wait for and are paged by."""

from __future__ import annotations

from collections.abc import Iterable

from enginewright.core.conditions import Verdict, bad, good
from enginewright.core.context import count
from enginewright.core.decide.serving import Serving
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.reasons import Condition, Reason


def available_verdict(obj: ObjectView, serving: Serving, revision: str) -> Verdict:
    """True while any proven engine answers behind the Service; ``revision`` is the one that the spec asks for. Where
    none is asked for that is no outage: alarms tell them apart by the reason."""
    if not serving.traffic and _none_asked_for(obj):
        return bad(Condition.AVAILABLE, Reason.SCALED_TO_ZERO, "spec.replicas is 0: nothing serves, as asked.")
    if not serving.traffic:
        return bad(Condition.AVAILABLE, Reason.NO_REPLICA, "No replica is ready behind the Service.")
    if revision in serving.traffic:
        return good(Condition.AVAILABLE, Reason.SERVING, f"Revision {revision} answers.")
    others = ", ".join(sorted(other or "of a replica that is gone" for other in serving.traffic))
    return good(
        Condition.AVAILABLE,
        Reason.SERVING_PREVIOUS,
        f"Revision {others} answers; that of the current spec does not yet.",
    )


def _none_asked_for(obj: ObjectView) -> bool:
    """By hand: what autoscaling or the suspension of a rollout leaves without a replica is not meant to stay so. The
    spec may be any rubbish."""
    return obj.spec.get("replicas") == 0 and not obj.spec.get("autoscaling")


def ready_verdict(
    observed: Observed, serving: Serving, revision: str, wanted: int, before: Iterable[Verdict], *, scaled: bool
) -> Verdict:
    """True only when the engine of the current generation serves on all wanted replicas and nothing else gets traffic.

    ``before`` are the conditions that must be True first, in the order of the walk: the first that is not tells why.
    Where it was ``scaled`` to no replica it is ready to start one.
    """
    for verdict in before:
        if not verdict.ok:
            return bad(Condition.READY, verdict.reason, verdict.message)
    if wanted == 0 and scaled:
        return good(Condition.READY, Reason.SCALED_TO_ZERO, f"Revision {revision} starts with the next request.")
    if wanted == 0:
        return bad(Condition.READY, Reason.NO_REPLICA, "No replica is wanted: nothing serves, as asked.")
    if short := _shortfall(observed, serving, revision, wanted):
        return bad(Condition.READY, Reason.REPLICAS_NOT_READY, short)
    return good(Condition.READY, Reason.SERVING, f"Revision {revision} serves on {count(wanted, 'replica')}.")


def _shortfall(observed: Observed, serving: Serving, revision: str, wanted: int) -> str:
    """What is missing from strict readiness; empty when nothing is."""
    deployed = serving.deployment(revision)
    exact = deployed is not None and deployed.spec_replicas == wanted == deployed.replicas == deployed.ready
    if not exact or not serving.full(deployed, wanted):
        ready = min(deployed.ready, serving.answering.get(revision, 0)) if deployed else 0
        if deployed and ready >= wanted:
            return (f"{count(ready, 'replica')} of revision {revision} ready where {wanted} should be; Deployment "
                    f"{deployed.name} asks for {deployed.spec_replicas}, has {deployed.replicas} and goes on changing.")
        return f"{ready} of {count(wanted, 'replica')} of revision {revision} ready."
    if any(other.revision != revision for other in observed.deployments):
        return "Another revision still runs."
    if observed.service is None or observed.service.revision != revision:
        return f"The Service does not select revision {revision} alone yet."
    if any(endpoint.activator for endpoint in observed.endpoints):
        return "Requests may still come through the activator."
    if any(endpoint.revision != revision for endpoint in observed.endpoints):
        return "A replica of another revision may still get traffic."
    answering = sum(endpoint.ready and not endpoint.terminating for endpoint in observed.endpoints)
    if answering < wanted:
        return f"{answering} of {count(wanted, 'replica')} behind the Service."
    return ""
