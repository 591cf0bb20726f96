"""The choice of the search in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from enginewright_builder.contract import ENERGY, ObjectiveRequest, ServingChoice, requests_needed
from enginewright_builder.measure.energy import inferences_per_joule_drawn
from enginewright_builder.sweep.objective import met, replicas_needed, requests_to_show, score, shown
from enginewright_builder.sweep.result import Point
from enginewright_builder.sweep.search import Search


@dataclass(frozen=True, kw_only=True)
class Coordinate:
    value: Callable[[ServingChoice], int]
    words: Callable[[int], str]


COORDINATES = (
    Coordinate(value=lambda serving: serving.instance_count, words=lambda count: counted(count, "instance")),
    Coordinate(value=lambda serving: serving.max_batch_size, words=lambda size: f"batches of up to {size}"),
    Coordinate(value=lambda serving: serving.max_queue_delay_us, words=lambda delay: f"a queue delay of {delay} µs"),
)


def reason(search: Search, best: Point, objective: ObjectiveRequest, *, stepped: bool = False) -> str:
    """What was chosen, what it reaches, what the alternatives reached, and why the search ended. ``stepped``: requests
    are steps of sequences."""
    chosen, threads = best.serving, f" of {best.threads} threads" if best.threads > 1 else ""
    text = (f"{counted(chosen.instance_count, 'instance')}{threads}, queue delay {chosen.max_queue_delay_us} µs, "
            f"{_joined(best) if stepped else _batches(chosen)}: {best.throughput:,.0f} inferences/s "
            f"with p{objective.latency_percentile:g} "
            f"{best.objective_ms:.1f} ms at {counted(best.concurrency, 'request')} in flight{_few(best, objective)}")
    if objective.latency_ms > 0:
        text += _verdict(search, best, objective)
    elif objective.minimise != ENERGY:
        text += ", the knee of the latency–throughput curve (no latency objective was given)"
    if objective.minimise == ENERGY:
        rate = inferences_per_joule_drawn(best.use, best.throughput) or 0.0
        text += f". It gives {rate:.3g} inferences a joule, idle power included{_most(search, rate)}"
    if replicas := replicas_needed(best, objective):
        text += f". {objective.throughput:,.0f} inferences/s take {counted(replicas, 'replica')}"
    return ". ".join([text, *_alternatives(search, best, objective), _end(search, best, objective)]) + "."


def _most(search: Search, rate: float) -> str:
    """A load beyond the latency limit may give more, and what ships was metered once more."""
    rates = [inferences_per_joule_drawn(point.use, point.throughput) or 0.0 for point in search.points]
    return ", the most of all that were measured" if rate >= max(rates) else ""


def _verdict(search: Search, best: Point, objective: ObjectiveRequest) -> str:
    limit, tried = f"the objective of {objective.latency_ms:g} ms", len(search.again)
    if shown(best, objective, search.ways):
        return f", within {limit} when it was measured once more"
    if met(best, objective):
        needed = requests_to_show(objective.latency_percentile, best.late, search.ways)
        return (f"; whether {limit} is met is not known: {best.late:,} of the {counted(best.requests, 'request')} were "
                f"late, and it takes {needed:,} to say so")
    if tried and met(search.best(), objective):
        return (f"; {limit} is missed: {counted(tried, 'setting')} that had seemed to keep it missed it when measured "
                "once more, and neither a try nor time was left for another")
    return f"; {limit} is missed, and nothing measured was faster"


def _few(best: Point, objective: ObjectiveRequest) -> str:
    """Where the requests are too few for the objective's percentile."""
    needed = requests_needed(objective.latency_percentile)
    if best.requests >= needed:
        return ""
    return (f" (that is the slowest of {best.requests:,} requests; p{objective.latency_percentile:g} takes {needed:,}, "
            "which the time did not allow)")


def _batches(chosen: ServingChoice) -> str:
    return f"batches of up to {chosen.max_batch_size}" if chosen.max_batch_size else "each request alone"


def _joined(best: Point) -> str:
    if best.serving.max_batch_size < 2:
        return "each step alone"
    return (f"steps of up to {best.serving.max_batch_size} sequences in one run, {best.mean_batch:.1f} of them in the "
            "mean")


def _alternatives(search: Search, best: Point, objective: ObjectiveRequest) -> list[str]:
    """For each coordinate, the best point measured with each other value of it."""
    notes = []
    for coordinate in COORDINATES:
        mine = coordinate.value(best.serving)
        others = sorted({coordinate.value(point.serving) for point in search.points} - {mine})
        found = []
        for other in others:
            point = max((one for one in search.points if coordinate.value(one.serving) == other),
                        key=lambda one: score(one, objective))
            found.append(f"{coordinate.words(other)} {point.throughput:,.0f}/s at {point.objective_ms:.1f} ms "
                         f"with {point.concurrency} in flight")
        if found:
            notes.append(f"At best, {', '.join(found)}")
    return notes


def _end(search: Search, best: Point, objective: ObjectiveRequest) -> str:
    text = counted(len(search.steps), "measurement")
    if again := len(search.steps) - len(search.points):
        text += f", {again} of them again, as one slow request may have made the choice"
    if search.again:
        text += f", and {len(search.again)} more of what was chosen"
    if search.doubts(best):
        text += (f", and neither one nor time was left to see whether one slow request made this "
                 f"p{objective.latency_percentile:g}")
    if not met(best, objective):
        return text
    return f"{text}; the most promising that is left is expected to gain {search.remaining_gain():.1%}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
