"""``enginewright simulate``: replays a trace against the operator's scaler and its peers, and prints how each did."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from enginewright.core.spec import AutoscalingSpec
from enginewright_simulation import language
from enginewright_simulation.answer import Answer
from enginewright_simulation.contest import NAMES, Contest
from enginewright_simulation.curve import USUAL_RPS, Service, of_figures
from enginewright_simulation.errors import InputError
from enginewright_simulation.ours import Ours, read_autoscaling
from enginewright_simulation.report import Measured, read_report
from enginewright_simulation.results import figures
from enginewright_simulation.run import Run, Scenario
from enginewright_simulation.scale import scaled
from enginewright_simulation.server import ROUNDING
from enginewright_simulation.tokens import TokenService
from enginewright_simulation.trace import Trace, read_trace

EXIT_USAGE: Final = 2
# Where neither the command line nor a build report says.
SLO_MS: Final = 100.0
PERCENTILE: Final = 99.0
COLD_START_SECONDS: Final = 20.0
LEAST, MOST = 1, 20
# Of spec.autoscaling.
MAX_REPLICAS: Final = 1000


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--trace", type=Path, required=True, metavar="FILE",
        help="CSV with a TIMESTAMP column, or Prometheus range data as JSON")
    add("--service-curve", type=Path, metavar="FILE", help="build-report.json of the engine")
    add("--service-ms", type=float, metavar="F", help="instead of a curve: milliseconds that one request alone takes")
    add("--capacity-rps", type=float, metavar="F", help="instead of a curve: most requests a second of one replica")
    add("--max-batch", type=int, metavar="N", help="largest batch; default: the report's, or what the capacity needs")
    add("--slo-ms", type=float, metavar="N", help=f"latency objective; default: the report's, or {SLO_MS:g}")
    add("--percentile", type=float, metavar="P", help="percentile of the objective; default: the report's, or "
                                                      f"{PERCENTILE:g}")
    add("--min", type=int, metavar="N", help=f"fewest replicas (default {LEAST})")
    add("--max", type=int, metavar="N", help=f"most replicas (default {MOST})")
    add("--autoscaling", type=Path, metavar="FILE",
        help="an OptimisedModel, or its block spec.autoscaling alone: all limits of the operator's scaler")
    add("--price-per-hour", type=float, metavar="F", help="price of a replica, for costCeilingPerHour")
    add("--cold-start-seconds", type=float, metavar="S",
        help=f"seconds until a new replica is ready; default: the report's load time, or {COLD_START_SECONDS:g}")
    add("--rate-scale", type=float, default=1.0, metavar="X",
        help="factor on the number of requests in the same time (default %(default)g)")
    add("--seed", type=int, default=0, metavar="N", help="seed of all random draws (default %(default)s)")
    add("--policies", default="all", metavar="LIST", help=f"all, or some of {','.join(NAMES)}")
    add("--grid", action="store_true", help="also run every peer with other targets and windows")
    language.arguments(command)
    add("--format", choices=("json", "table", "html"), default="table",
        help="for people, programs or a browser (default table)")
    command.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """0 when it was simulated, 2 when an input is refused."""
    try:
        names, ours = _names(options.policies), _ours(options)
        if language.chosen(options):
            names = language.names(names, options.policies == "all")
            trace = read_trace(options.trace, tokens=True)
            arrivals = scaled(language.arrivals_of(trace), options.rate_scale, options.seed)
            scenario = language.scenario_of(options, language.arrivals_of(trace), ours)
        else:
            scenario = _scenario(options, _measured(options), ours)
            trace = read_trace(options.trace, options.seed)
            arrivals = scaled(trace.arrivals, options.rate_scale, options.seed)
        ours = replace(ours, start=trace.start)
    except InputError as error:
        print(f"enginewright: {error}", file=sys.stderr)
        return EXIT_USAGE
    contest = Contest(arrivals, scenario, ours)
    runs = {name: contest.run(name) for name in names}
    _print(_answer(options, trace, arrivals, contest, runs), runs, arrivals, options.format)
    return 0


def _names(text: str) -> tuple[str, ...]:
    if text == "all":
        return NAMES
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in NAMES]
    if unknown or not names:
        raise InputError(f"--policies: got {text!r}; write all, or some of {','.join(NAMES)}")
    return names


def _measured(options: argparse.Namespace) -> Measured:
    if options.max_batch is not None and options.max_batch < 1:
        raise InputError(f"--max-batch: got {options.max_batch}; write 1 or more")
    if options.service_curve is None:
        return Measured(service=of_figures(options.service_ms, options.capacity_rps, options.max_batch))
    if options.service_ms is not None or options.capacity_rps is not None:
        raise InputError("--service-curve: replaces --service-ms and --capacity-rps; leave those out")
    return read_report(options.service_curve, options.max_batch)


def _ours(options: argparse.Namespace) -> Ours:
    if options.price_per_hour is not None and not 0 < options.price_per_hour < math.inf:
        raise InputError(f"--price-per-hour: got {options.price_per_hour:g}; write a number above 0")
    if options.autoscaling is None:
        _refuse_price(options.price_per_hour)
        low = LEAST if options.min is None else options.min
        high = MOST if options.max is None else options.max
        if high > MAX_REPLICAS:
            raise InputError(f"--max: got {high}; autoscaling.maxReplicas is at most {MAX_REPLICAS}, write no more")
        if not 0 <= low <= high or high < 1:
            raise InputError(f"--min, --max: got {low} and {high}; write a minimum of 0 or more, and a maximum of at "
                             "least 1 that is not below it")
        return Ours(autoscaling=AutoscalingSpec(min_replicas=low, max_replicas=high))
    if options.min is not None or options.max is not None:
        raise InputError("--autoscaling: replaces --min and --max; leave those out")
    found = read_autoscaling(options.autoscaling)
    if found.cost_ceiling_per_hour is not None and options.price_per_hour is None:
        raise InputError(f"{options.autoscaling}: autoscaling.costCeilingPerHour {found.cost_ceiling_per_hour:g} has "
                         "no meaning without a price; write --price-per-hour F, that of a replica")
    if found.cost_ceiling_per_hour is None:
        _refuse_price(options.price_per_hour)
    return Ours(autoscaling=found, price=options.price_per_hour)


def _refuse_price(price: float | None) -> None:
    if price is not None:
        raise InputError(f"--price-per-hour: {price:g} has no meaning without autoscaling.costCeilingPerHour; write "
                         "that into the file of --autoscaling, or leave the price out")


def _scenario(options: argparse.Namespace, measured: Measured, ours: Ours) -> Scenario:
    slo_ms = _first(options.slo_ms, measured.slo_ms, SLO_MS)
    percentile = _first(options.percentile, measured.percentile, PERCENTILE)
    cold_start = _first(options.cold_start_seconds, measured.load_seconds, COLD_START_SECONDS)
    if not 0 < slo_ms < math.inf:
        raise InputError(f"--slo-ms: got {slo_ms:g}; write a number above 0")
    if not 0 < percentile < 100:
        raise InputError(f"--percentile: got {percentile:g}; write a number between 0 and 100, such as 99")
    if not 0 <= cold_start < math.inf:
        raise InputError(f"--cold-start-seconds: got {cold_start:g}; write 0 or more")
    alone = measured.service.alone * 1e3
    if slo_ms + ROUNDING * 1e3 < alone:
        raise InputError(f"--slo-ms: {slo_ms:g} is {alone - slo_ms:g} ms below the {alone:g} ms that one request takes "
                         f"alone: no number of replicas meets it; write more than {alone:g}, or take a faster engine"
                         )
    return Scenario(
        service=measured.service, throughput=measured.throughput, slo=slo_ms / 1e3, percentile=percentile,
        min_replicas=ours.least, max_replicas=ours.most, cold_start=cold_start, seed=options.seed,
    )


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def _answer(options: argparse.Namespace, trace: Trace, arrivals: Sequence[float], contest: Contest,
            runs: dict[str, Run]) -> Answer:
    seconds = arrivals[-1]
    scenario = contest.scenario
    answer: Answer = {
        "trace": {
            "name": trace.name, "requests": len(arrivals), "seconds": round(seconds, 3),
            "mean_rps": round(len(arrivals) / max(seconds, 1.0), 3),
            "peak_rps": max(Counter(map(int, arrivals)).values()),
            "rate_scale": options.rate_scale, "seed": options.seed,
        },
        "settings": _settings(scenario, scenario.service),
        "policies": {name: figures(run) for name, run in runs.items()},
        "notes": [*_assumed(options), *_cold(scenario, scenario.service), *contest.ours.notes, *trace.notes],
    }
    if options.grid:
        answer["grid"] = [
            {"policy": name, "settings": settings, "slo_violations": len(run.ledger.late),
             "replica_seconds": round(run.replica_seconds, 3)}
            for name, settings, run in contest.grid(runs)
        ]
    return answer


def _assumed(options: argparse.Namespace) -> tuple[str, ...]:
    if (options.service_curve, options.service_ms, options.capacity_rps, options.step_ms) != (None,) * 4:
        return ()
    return (f"No replica is described, so the simulation assumes {USUAL_RPS:g} requests a second, one by one; write "
            "--service-curve build-report.json, or --service-ms and --capacity-rps.",)


def _settings(scenario: Scenario, service: Service | TokenService) -> dict[str, float]:
    if isinstance(service, TokenService):
        return language.settings_of(scenario)
    return {
        "slo_ms": scenario.slo * 1e3, "percentile": scenario.percentile, "min": scenario.min_replicas,
        "max": scenario.max_replicas, "cold_start_seconds": scenario.cold_start,
        "service_ms": service.seconds[1] * 1e3, "capacity_rps": service.capacity,
        "max_batch": service.max_batch, "instances": service.instances,
    }


def _cold(scenario: Scenario, service: Service | TokenService) -> tuple[str, ...]:
    """Not refused: a replica that is never idle may still meet the objective."""
    if isinstance(service, TokenService):
        return ("Latencies are of first tokens. A request is late by either objective. The capacity is what a build "
                "would measure of such a replica.",)
    woken = service.alone + service.wake
    if woken <= scenario.slo + ROUNDING:
        return ()
    return (f"A request that finds a replica idle takes {woken * 1e3:g} ms, more than the objective of "
            f"{scenario.slo * 1e3:g} ms: all of those are late, and more replicas make them more.",)


def _print(answer: Answer, runs: dict[str, Run], arrivals: Sequence[float], form: str) -> None:
    if form == "json":
        print(json.dumps(answer, indent=2))
        return
    # Only people need these.
    from enginewright_simulation.page import page
    from enginewright_simulation.table import show

    if form == "html":
        print(page(answer, runs, arrivals))
    else:
        show(answer)
