"""From an engine's record to what one replica can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from enginewright.core.observed import EngineRecord
from enginewright.core.scaling.capacity import Capacity
from enginewright.core.scaling.work import seconds_of
from enginewright.core.spec import Spec
from enginewright.core.spec.engine import ObjectiveSpec, TokensSpec
from enginewright_builder.contract import BatchTime, GenerateSummary, TokenFigures, TokenWork

# From the write of a scale-up until the server's process begins to load, where the image is on the node: the scheduler,
# the volume, the check of the engine, and the first probe. An assumption; loading itself is measured.
POD_SECONDS = 10.0
MICROSECONDS = 1e6  # in a second


def capacity_asked_for(spec: Spec, record: EngineRecord | None) -> Capacity | None:
    """None where queue depth alone is to decide: it is asked to, or Prometheus is read, which tells no arrivals."""
    scaling = spec.autoscaling
    if scaling is None or scaling.algorithm != "measured" or scaling.source != "direct":
        return None
    return capacity_of(record, spec.objective)


def capacity_of(record: EngineRecord | None, objective: ObjectiveSpec) -> Capacity | None:
    """None without a record that tells a throughput. Where the record has no service curve (engines of older builders),
    a replica is taken to work on so many requests side by side as its throughput and median latency make (Little's
    law), each in that latency. Of a language model see :func:`of_tokens`."""
    if record and record.outcome.generate:
        return _of_language_model(record.outcome.generate, objective)
    engine = record.outcome.engine if record else None
    if record is None or engine is None:
        return None
    throughput = engine.throughput_at_objective or engine.throughput
    seconds = engine.p50_ms / 1000
    if throughput <= 0 or seconds <= 0:
        return None
    latency = objective.latency
    found = Capacity(
        throughput=throughput,
        curve=((1, seconds),),
        instances=max(1, round(throughput * seconds)),
        objective_seconds=latency.milliseconds / 1000 if latency else None,
        percentile=latency.percentile if latency else 99.0,
        cold_start_seconds=engine.load_seconds + POD_SECONDS,
    )
    curve, serving = _curve(engine.service_curve), record.outcome.serving
    if not curve or serving is None:
        return found
    delay = serving.max_queue_delay_us / MICROSECONDS
    return replace(found, curve=curve, instances=serving.instance_count, delay_seconds=delay)


def _of_language_model(found: GenerateSummary, objective: ObjectiveSpec) -> Capacity | None:
    work = found.work or _of_outputs(found.tokens)
    tokens, cold = found.tokens, found.load_seconds + POD_SECONDS
    return of_tokens(tokens.concurrency, tokens.ttft_p50_ms / 1000, work, objective.tokens, cold) if work else None


def of_tokens(at_once: int, first: float, work: TokenWork, asked: TokensSpec | None, cold: float) -> Capacity | None:
    """Of a language model's replica that was measured with ``at_once`` requests in flight and ``first`` seconds
    until the first token, and that answers ``cold`` seconds after it was asked for. Requests of the size that was
    measured, as many at once as were in flight then: with more, tokens come more slowly than was measured. What is
    answered is the first token; the time of those after it is kept by the load that was measured. None where no
    first token came."""
    if first <= 0:
        return None
    ttft = asked.ttft_milliseconds if asked else None
    return Capacity(
        throughput=1 / seconds_of(work, work.input_tokens, work.output_tokens),
        curve=((1, first),),
        instances=max(1, at_once),
        objective_seconds=ttft / 1000 if ttft else None,
        percentile=asked.percentile if asked else 99.0,
        cold_start_seconds=cold,
        work=work,
    )


def _of_outputs(tokens: TokenFigures) -> TokenWork | None:
    """Of records that do not tell: all work is that of the tokens that came out. None where no request was in time."""
    if tokens.output_rate <= 0 or tokens.goodput <= 0:
        return None
    return TokenWork(input_tokens=0.0, output_tokens=tokens.output_rate / tokens.goodput, input_seconds=0.0,
                     output_seconds=1 / tokens.output_rate)


def _curve(measured: Sequence[BatchTime]) -> tuple[tuple[int, float], ...]:
    """Seconds by rising batch. A larger batch that measured faster is noise, and takes as long as the one below.
    Without one request alone nothing is known of the least latency, and the curve is not used."""
    points = sorted((one.batch, one.p50_ms / 1000) for one in measured if one.batch >= 1 and one.p50_ms > 0)
    if not points or points[0][0] != 1:
        return ()
    return tuple(zip((batch for batch, _ in points), accumulate((seconds for _, seconds in points), max), strict=True))
