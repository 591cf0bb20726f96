"""A trace with token counts, and the replica of a language model that it is replayed against."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Final

from enginewright.core.spec.engine import TokensSpec
from enginewright_simulation.errors import InputError
from enginewright_simulation.ours import Ours
from enginewright_simulation.run import Scenario
from enginewright_simulation.sweep import measured
from enginewright_simulation.tokens import Asked, TokenService
from enginewright_simulation.trace import READ, WRITTEN, Trace

# The option that says that a language model is simulated.
CHOSEN: Final = "step_ms"
_TIMES: Final = (CHOSEN, "request_ms", "input_ms", "ttft_ms", "tpot_ms")
_COUNTS: Final = ("at_once", "cache_tokens")
_OTHERS: Final = ("service_curve", "service_ms", "capacity_rps", "max_batch", "slo_ms")
COLD_START_SECONDS: Final = 60.0
PERCENTILE: Final = 99.0
# Without an oracle: its plan is of requests that are alike.
NAMES: Final = ("enginewright", "hpa", "keda", "knative")


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument_group("of a language model, in place of a service curve and its objective").add_argument
    add("--step-ms", type=float, metavar="F", help="milliseconds of a step that makes one token for one request")
    add("--request-ms", type=float, metavar="F", help="milliseconds more for each further request in the step")
    add("--input-ms", type=float, metavar="F", help="milliseconds that a thousand tokens of a prompt take to read")
    add("--at-once", type=int, metavar="N", help="most requests that are answered at once (default 256)")
    add("--cache-tokens", type=int, metavar="N", help="tokens that the KV cache holds (default: no limit)")
    add("--ttft-ms", type=float, metavar="F", help="objective of the first token")
    add("--tpot-ms", type=float, metavar="F", help="objective of each token after it")


def chosen(options: argparse.Namespace) -> bool:
    """Raises :class:`InputError` where options of both kinds of replica are given, or one that the other lacks."""
    given = [name for name in (*_TIMES, *_COUNTS) if getattr(options, name) is not None]
    if not given:
        return False
    if options.step_ms is None:
        raise InputError(f"{_option(given[0])}: applies to a language model; write --step-ms, --request-ms and "
                         "--input-ms, or leave it out")
    for name in _OTHERS:
        if getattr(options, name) is not None:
            raise InputError(f"{_option(name)}: applies to whole answers, and --step-ms to a language model; leave one "
                             "of them out")
    for name in ("request_ms", "input_ms"):
        if getattr(options, name) is None:
            raise InputError(f"{_option(name)}: is missing; a language model takes --step-ms, --request-ms, --input-ms")
    if options.ttft_ms is None and options.tpot_ms is None:
        raise InputError("--ttft-ms, --tpot-ms: are missing; write one of them, or both: requests are late by them")
    for name in (*_TIMES, *_COUNTS):
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"{_option(name)}: got {value:g}; write a number above 0")
    return True


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def names(wanted: Sequence[str], everything: bool) -> tuple[str, ...]:
    """Raises :class:`InputError`."""
    if not everything and "oracle" in wanted:
        raise InputError(f"--policies: the oracle knows no language model; write some of {','.join(NAMES)}")
    return tuple(name for name in wanted if name in NAMES)


def arrivals_of(trace: Trace) -> Sequence[Asked]:
    """Raises :class:`InputError` where the trace has no token counts."""
    if len(trace.sizes) != len(trace.arrivals):
        raise InputError(f"{trace.name}: has no columns {READ} and {WRITTEN}; add the tokens of each prompt and of its "
                         "answer, or describe a replica without --step-ms")
    return [Asked.at(came, read, written)
            for came, (read, written) in zip(trace.arrivals, trace.sizes, strict=True)]


def service_of(options: argparse.Namespace) -> TokenService:
    return TokenService(
        step_seconds=(options.step_ms - min(options.step_ms, options.request_ms)) / 1e3,
        request_seconds=options.request_ms / 1e3, input_seconds=options.input_ms / 1e6,
        at_once=options.at_once or TokenService.at_once, cache_tokens=options.cache_tokens or math.inf)


def scenario_of(options: argparse.Namespace, sizes: Sequence[Asked], ours: Ours) -> Scenario:
    """With what a build would measure of the replica by requests of ``sizes``. Raises :class:`InputError`."""
    percentile = PERCENTILE if options.percentile is None else options.percentile
    cold_start = COLD_START_SECONDS if options.cold_start_seconds is None else options.cold_start_seconds
    if not 50 <= percentile <= 99.99:
        raise InputError(f"--percentile: got {percentile:g}; write a number from 50 to 99.99, such as 99")
    if not 0 <= cold_start < math.inf:
        raise InputError(f"--cold-start-seconds: got {cold_start:g}; write 0 or more")
    service = service_of(options)
    asked = TokensSpec(ttft_milliseconds=options.ttft_ms, tpot_milliseconds=options.tpot_ms, percentile=percentile)
    capacity = measured(service, sizes, asked, cold_start)
    if capacity is None:
        raise InputError(f"--ttft-ms, --tpot-ms: not one request at a time keeps them at p{percentile:g} with these "
                         "token counts; write more, or describe a faster replica")
    return Scenario(service=service, slo=(options.ttft_ms or math.inf) / 1e3, tpot=(options.tpot_ms or math.inf) / 1e3,
                    percentile=percentile, min_replicas=ours.least, max_replicas=ours.most, cold_start=cold_start,
                    seed=options.seed, capacity=capacity)


def settings_of(scenario: Scenario) -> dict[str, float]:
    """For the answer."""
    capacity = scenario.measured
    found = {"percentile": scenario.percentile, "min": scenario.min_replicas, "max": scenario.max_replicas,
             "cold_start_seconds": scenario.cold_start, "capacity_rps": round(capacity.throughput, 3),
             "at_once": capacity.instances}
    for name, seconds in (("ttft_ms", scenario.slo), ("tpot_ms", scenario.tpot)):
        if seconds < math.inf:
            found[name] = seconds * 1e3
    if capacity.work:
        found |= {"input_tokens": round(capacity.work.input_tokens, 1),
                  "output_tokens": round(capacity.work.output_tokens, 1)}
    return found
