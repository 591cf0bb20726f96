"""What ``explain`` says in money: what inferences cost, what the build brought, and what other steps would. Pure.

``optimise or scale`` is a question of price: an hour of one replica more, against a build, a lower precision, or
another class of devices. Each figure is of a build, of live traffic or of the operator's prices.
"""

from __future__ import annotations

from collections.abc import Iterator

from enginewright.core.cost import price_words, rounded
from enginewright.core.money import build_price, paid_back_hours
from enginewright.core.status import CandidateStatus, ClassStatus, CostStatus, EngineStatus, ServedStatus, Status
from enginewright.plugin.durations import age

HOUR = 3600
# Below this share nothing is said of replicas that are idle.
IDLE = 0.5


def sentences(status: Status) -> tuple[str, ...]:
    """None without a price."""
    return (*_of_model(status), *_of_classes(status.classes))


def before_and_after(status: Status) -> str:
    """What a million inferences cost as served and as the source model would serve them. Empty without a price, or
    where the build has not compared the two."""
    cost, engine = status.cost, status.engine
    after = cost.per_million_inferences if cost else None
    if cost is None or engine is None or after is None or not engine.speedup:
        return ""
    return (f"Before, with the source model, a million inferences would cost {rounded(after * engine.speedup):g} "
            f"{cost.currency}, by the speed-up of {engine.speedup:.2f} that the build measured; with this engine they "
            f"cost {after:g} {cost.currency} at the objective. One replica costs {cost.price_per_hour:g} "
            f"{cost.currency} an hour.")


def _of_model(status: Status) -> Iterator[str]:
    cost, engine = status.cost, status.engine
    if cost is None:
        return
    yield f"Cost: {price_words(cost)} for a million {_unit(cost)} at the objective."
    if cost.served:
        yield _served(cost, cost.served)
        if engine and (built := _built(cost, cost.served, engine)):
            yield built
    if status.batch is None:
        yield _replica(status, cost)
    if engine and (refused := _refused(cost, engine, status.candidates)):
        yield refused


def _unit(cost: CostStatus) -> str:
    return "inferences" if cost.per_million_tokens is None else "tokens"


def _served(cost: CostStatus, served: ServedStatus) -> str:
    price = "" if served.per_million is None else f", which cost {served.per_million:g} {cost.currency} a million"
    idle = "" if served.idle_share is None else f"; {served.idle_share:.0%} of what the replicas can answer was idle"
    return f"Served: {served.per_second:g} {_unit(cost)} a second in the last minute{price}{idle}."


def _built(cost: CostStatus, served: ServedStatus, engine: EngineStatus) -> str:
    """Whether the build pays for itself at this traffic. Empty where it is not known, or where there was none."""
    if engine.build_seconds is None or engine.cache_hit or served.saved_per_hour is None:
        return ""
    price = build_price(cost.price_per_hour, engine.build_seconds)
    took = f"Build: {age(engine.build_seconds)} of its device for {price:.3g} {cost.currency}."
    hours = paid_back_hours(price, served.saved_per_hour)
    if hours is None:
        return (f"{took} At this traffic the source model would take as many replicas: the build shortens requests and "
                f"never pays for itself in money.")
    return (f"{took} At this traffic replicas of the source model would cost {served.saved_per_hour:g} {cost.currency} "
            f"an hour more: it pays for itself in {age(hours * HOUR)}.")


def _replica(status: Status, cost: CostStatus) -> str:
    tokens = status.engine.tokens if status.engine else None
    rate = tokens.output_rate if tokens else cost.throughput
    more = f" and answers up to {rate:g} {_unit(cost)} a second more" if rate else ""
    saved = ""
    if cost.served and (cost.served.idle_share or 0) >= IDLE and (status.replicas or 0) > 0:
        idle = (cost.served.idle_share or 0) * (status.replicas or 0) * cost.price_per_hour
        saved = (f" What is idle costs {idle:.3g} {cost.currency} an hour: lower autoscaling.minReplicas, or place the "
                 f"model on a smaller device.")
    return f"One replica more costs {cost.price_per_hour:g} {cost.currency} an hour{more}.{saved}"


def _refused(cost: CostStatus, engine: EngineStatus, candidates: tuple[CandidateStatus, ...]) -> str:
    """The fastest candidate that accuracy alone keeps from serving, by the largest batch of what serves."""
    serving = [one for one in candidates if one.serves and one.throughput]
    if not serving or cost.per_million_inferences is None:
        return ""
    mine = max(serving, key=lambda one: one.batch)
    others = [one for one in candidates if one.verdict == "AccuracyRefused" and one.batch == mine.batch
              and (one.throughput or 0) > (mine.throughput or 0)]
    if not others:
        return ""
    best = max(others, key=lambda one: one.throughput or 0)
    gain = (best.throughput or 0) / (mine.throughput or 1)
    price = cost.per_million_inferences / gain
    return (f"{best.backend} {best.precision} was {gain:.2f} times as fast and refused for its accuracy: with it a "
            f"million would cost about {price:.3g} {cost.currency}. Better calibration data may save it.")


def _of_classes(classes: tuple[ClassStatus, ...]) -> Iterator[str]:
    priced = sorted((one.per_million_inferences, one.name) for one in classes if one.per_million_inferences)
    if len(priced) < 2:
        return
    (least, name), others = priced[0], priced[1:]
    dearer = ", ".join(f"{price / least:.2g} times as much on {other}" for price, other in others)
    yield f"Cheapest class at the objective: {name}; a million inferences cost {dearer}."
