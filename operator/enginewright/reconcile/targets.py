"""From what a pass saw and decided to what happens between passes: what to scrape, what to be woken by."""

from __future__ import annotations

from enginewright.core import request, status
from enginewright.core.decide.scale import shown
from enginewright.core.language_models import server_at
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.plan import Plan, Scale
from enginewright.core.scaling import capacity_asked_for
from enginewright.core.spec import Spec, parse_spec
from enginewright.observe.signals import Target


def target_of(view: ObjectView, observed: Observed, plan: Plan) -> Target:
    """Every ready replica, of whichever revision. The scaling rule runs between passes only while one Deployment
    serves: during a rollout the pass decides alone."""
    ready = [pod for pod in observed.pods if pod.ready and pod.ip and not pod.deleting]
    replicas, revisions = {pod.name: pod.ip for pod in ready}, {pod.name: pod.revision for pod in ready}
    spec = parse_spec(view.spec)
    if not isinstance(spec, Spec):
        return Target(replicas=replicas, current=len(replicas), revisions=revisions, question=plan.question)
    serving = [deployment for deployment in observed.deployments if not deployment.deleting]
    server = server_at(observed, serving[0].revision if serving else "", spec)
    if spec.autoscaling is None:
        return Target(replicas=replicas, current=len(replicas), revisions=revisions, question=plan.question,
                      metered=_metered(spec), server=server)
    scaled = {action.deployment: action.replicas for action in plan.actions if isinstance(action, Scale)}
    alone = serving[0] if len(serving) == 1 else None
    # During a rollout replicas are asked themselves: Prometheus tells of the queue, not of failed inferences.
    prometheus = spec.autoscaling.prometheus if spec.autoscaling.source == "prometheus" and alone else None
    return Target(
        replicas=replicas,
        revisions=revisions,
        question=plan.question,
        capacity=capacity_asked_for(spec, observed.records.get(alone.fingerprint)) if alone else None,
        starting=_starting(observed),
        current=scaled.get(alone.name, alone.spec_replicas) if alone else _wanted(plan, len(replicas)),
        limits=plan.limits if alone else None,
        activators={pod.name: pod.ip for pod in observed.activators if pod.ready and pod.ip},
        prometheus=prometheus.url if prometheus else "",
        matchers=prometheus.labels if prometheus else "",
        metered=_metered(spec),
        server=server,
        shown=shown(_told(plan)),
    )


def _metered(spec: Spec) -> bool:
    """On a MIG slice the counters are of the whole GPU."""
    return spec.placement.accelerator == "gpu" and spec.placement.mig is None


def _wanted(plan: Plan, ready: int) -> int:
    """What is asked for of the model, of however many revisions: pods of two are no step that the scaler took."""
    told = _told(plan).desired_replicas
    return ready if told is None else told


def _told(plan: Plan) -> status.AutoscalingStatus:
    found = status.read(status.AutoscalingStatus, plan.status.get("autoscaling"))
    return status.AutoscalingStatus() if found is None else found


def _starting(observed: Observed) -> tuple[float, ...]:
    """Replicas that will answer; one that finds no node will not."""
    return tuple(
        observed.monotonic - (observed.now - pod.created).total_seconds()
        for pod in observed.pods
        if not (pod.ready or pod.deleting or pod.unschedulable) and pod.created is not None
    )


def needed_claims(view: ObjectView) -> frozenset[str]:
    spec = parse_spec(view.spec)
    return request.needed_claims(spec) if isinstance(spec, Spec) else frozenset()
