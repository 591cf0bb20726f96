"""Conditions AccuracyVerified, ObjectiveMet and BatchingAdaptive: what the evidence of an engine says, with figures.

Whether replicas' batching follows the traffic is said where the spec asks for it. Each replica decides for itself, on
its own counters; what is said here is whether those that serve can, by the containers that their pods have: a
Deployment stays as it was made, whatever the installation's settings became since. Where they cannot, it is said why
new ones could not either, by what the build measured and the memory that there is, or what makes new ones. What serves
otherwise is what the build proved, so that the readiness of no revision depends on it.
"""

from __future__ import annotations

from enginewright.core.batching import Refusal, SafeSet
from enginewright.core.conditions import Verdict, bad, good, unknown
from enginewright.core.context import PassContext
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.decide.slice import measured_latency
from enginewright.core.manifests import adaptive
from enginewright.core.observed import DeploymentView
from enginewright.core.reasons import Condition, Reason
from enginewright.core.serving import Serving
from enginewright.core.spec import Spec
from enginewright_builder.contract import EngineSummary


def accuracy(spec: Spec, engine: EngineResult) -> Verdict:
    failure = engine.memory.failure if engine.memory and engine.record is None else None
    if failure and failure.reason == Reason.ACCURACY_NOT_REACHED:
        return bad(
            Condition.ACCURACY_VERIFIED,
            Reason.ACCURACY_NOT_REACHED,
            f"{failure.message} status.candidates has what was measured.",
        )
    summary = engine.record.outcome.engine if engine.record else None
    if summary is None:
        return unknown(Condition.ACCURACY_VERIFIED, Reason.WAITING_FOR_ENGINE, "Measured when the engine is built.")
    figures = (
        f"{spec.accuracy.metric} {summary.accuracy:.4f} (at least {summary.accuracy_low:.4f} with 95 % confidence; "
        f"{1 - spec.accuracy.max_loss:g} is needed)"
    )
    if summary.evaluation == "synthetic":
        return good(
            Condition.ACCURACY_VERIFIED,
            Reason.VERIFIED_ON_SYNTHETIC_DATA,
            f"{figures} on synthetic inputs: name real ones in spec.accuracy.evaluation.",
        )
    return good(Condition.ACCURACY_VERIFIED, Reason.VERIFIED, f"{figures} on held-out data.")


def objective(spec: Spec, engine: EngineResult) -> Verdict:
    latency, throughput = spec.objective.latency, spec.objective.throughput
    if latency is None and not throughput:
        return good(Condition.OBJECTIVE_MET, Reason.NO_OBJECTIVE, "spec.objective asks for no latency or throughput.")
    summary = engine.record.outcome.engine if engine.record else None
    if summary is None:
        return unknown(Condition.OBJECTIVE_MET, Reason.WAITING_FOR_ENGINE, "Measured when the engine is built.")
    figures = _figures(spec, summary)
    if summary.objective_met:
        return good(Condition.OBJECTIVE_MET, Reason.MET, f"{figures}.")
    return bad(
        Condition.OBJECTIVE_MET,
        Reason.NOT_MET,
        f"{figures}: the best configuration that was found misses it; relax spec.objective or use faster hardware.",
    )


def _figures(spec: Spec, summary: EngineSummary) -> str:
    figures = []
    if latency := spec.objective.latency:
        percentile, measured = measured_latency(summary, latency.percentile)
        figures.append(f"p{percentile:g} {measured:.1f} ms of p{latency.percentile:g} {latency.milliseconds:g} ms "
                       f"allowed")
    if spec.objective.throughput:
        figures.append(f"{summary.throughput:.0f} of {spec.objective.throughput:g} inferences a second")
    return ", ".join(figures)


def batching(ctx: PassContext, engine: EngineResult) -> Verdict | None:
    """None where the spec does not ask."""
    if not ctx.spec.batching.adaptive:
        return None
    serving = ctx.serving
    deployed = serving.stable or serving.deployment(engine.revision)
    found = None
    if engine.record is not None and engine.placement is not None:
        found = adaptive(ctx.spec, engine.record, engine.placement, ctx.config)
    if deployed and deployed.batcher:
        return good(Condition.BATCHING_ADAPTIVE, Reason.FOLLOWING, _following(deployed, engine.revision, found))
    if found is None:
        return unknown(Condition.BATCHING_ADAPTIVE, Reason.WAITING_FOR_ENGINE,
                       "What batching may be is known once the engine is built.")
    if isinstance(found, Refusal):
        return bad(Condition.BATCHING_ADAPTIVE, found.reason,
                   f"{found.message} Replicas serve with the batching that the build chose.")
    if deployed:
        return bad(Condition.BATCHING_ADAPTIVE, Reason.MADE_WITHOUT_BATCHER,
                   _without(deployed, serving, engine.revision))
    return good(Condition.BATCHING_ADAPTIVE, Reason.FOLLOWING, _begins(found))


def _begins(found: SafeSet) -> str:
    return f"Each replica begins with what the build chose, {found.default}, and follows its own traffic from there."


def _following(deployed: DeploymentView, wanted: str, found: SafeSet | Refusal | None) -> str:
    if isinstance(found, SafeSet) and deployed.revision == wanted:
        return _begins(found)
    then = f" New ones would not: {found.message}" if isinstance(found, Refusal) else ""
    return f"Each replica of revision {deployed.revision} follows its own traffic.{then}"


def _without(deployed: DeploymentView, serving: Serving, wanted: str) -> str:
    message = (f"The pods of revision {deployed.revision}, which serves, were made without the container that adapts "
               "batching: they serve with the batching that the build chose.")
    coming = serving.deployment(wanted)
    if coming is None or coming.batcher:
        return f"{message} Those of revision {wanted} are made with it."
    return f"{message} A new revision has it, such as that of another annotation in spec.serving.podTemplate."
