"""What one reading of a replica costs the operator: ``make reading-study``. It asks servers of pages for their queues,
one after the other, and judges what they say by queue depth and by a measured capacity. No cluster, no pass is in it.

A clock that the study turns by hand makes each round a second later than the one before, so that nothing waits. Each
figure is CPU time of the operator's process, so that other work on the machine makes it larger by what caches cost
alone. To compare two commits, run both at one time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping

from enginewright.clients.prometheus import PrometheusClient
from enginewright.clients.triton import TritonClient
from enginewright.core.scaling import Capacity, ScaleLimits
from enginewright.core.signals import Sample, Spent
from enginewright.observe.keys import Key
from enginewright.observe.signals import Signals, Target, _Watched
from enginewright.observe.window import Window
from scale_study.pages import pages
from scale_study.place import enter

QUEUE = ScaleLimits(min_replicas=1, max_replicas=3, target=4, bounded=True)
MEASURED = Capacity(throughput=100.0, curve=((1, 0.01), (8, 0.03)), objective_seconds=0.1, cold_start_seconds=20.0)
# Ages in seconds of the samples that each window begins with: as many as it holds after an hour.
AGES = (*range(3600, 120, -10), *range(120, 0, -1))
# Rounds before those that are measured: connections are made in them, and the first tell of no arrivals yet.
FIRST = 3
# Seconds for an answer: on a busy machine one that is late is a reading all the same.
DEADLINE = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="scale_study.reading", description=__doc__)
    parser.add_argument("--n", type=int, default=300, help="replicas (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=20, help="over all of them (default %(default)s)")
    parser.add_argument("--loaded", action="store_true", help="requests come to each: none of them rests")
    parser.add_argument("--by", choices=("queue", "measured"), nargs="+", default=["queue", "measured"])
    options = parser.parse_args()
    enter("scale_study.reading")
    found = {by: asyncio.run(_cost(options.n, options.rounds, MEASURED if by == "measured" else None, options.loaded))
             for by in options.by}
    print(json.dumps(found, indent=2))


class Clock:
    def __init__(self) -> None:
        self.now = time.monotonic()

    def __call__(self) -> float:
        return self.now


async def _cost(n: int, rounds: int, capacity: Capacity | None, loaded: bool) -> dict[str, float]:
    """Over ``rounds``, of ``n`` replicas in which no request waits, or with ``loaded`` fewer than their target."""
    count, clock = 0, Clock()

    def scraped(_: str, answered: bool) -> None:
        nonlocal count
        count += answered

    async with pages() as wait, TritonClient(deadline=DEADLINE) as triton, PrometheusClient() as prometheus:
        signals = Signals(triton, prometheus, wake=lambda _: None, clock=clock, scraped=scraped)
        watched: dict[Key, _Watched] = {}
        for number in range(n):
            pod, address = f"m-{number}-0", f"10.100.{number >> 8}.{number & 255}"
            target = Target(replicas={pod: address}, current=1, limits=QUEUE, capacity=capacity)
            key = Key("studied", f"m-{number}")
            watched[key] = signals._watched[key] = _Watched(target, clock.now)
            _fill(watched[key].window, pod, clock.now)
            wait({address: int(loaded)})
        await _rounds(FIRST, signals, watched, clock)
        count, used = 0, time.process_time()
        await _rounds(rounds, signals, watched, clock)
        used = time.process_time() - used
        signals._watched.clear()
    return {"readings": count, "cpu_ms_a_reading": round(1000 * used / count, 3)}


async def _rounds(rounds: int, signals: Signals, watched: Mapping[Key, _Watched], clock: Clock) -> None:
    for _ in range(rounds):
        clock.now += 1.0
        for key, one in watched.items():
            await signals.round(key, one.target, one.window)
            signals._judge(key, one)


def _fill(window: Window, pod: str, now: float) -> None:
    for age in AGES:
        window.add(Sample(time=now - age, ready=1, pending={pod: 0.0}, arrived=0.0, inflight=0.0,
                          served={pod: 0.0}, spent={pod: Spent(1.0)}))


if __name__ == "__main__":
    main()
