"""What one reading of a replica costs the operator: ``make reading-study``. It asks servers of pages for their queues,
each once a second, and judges what they say by queue depth and by a measured capacity. No cluster and no pass is in it.

Each figure is CPU time of the operator's process, so that other work on the machine makes it larger by what caches cost
alone. To compare two commits, run both at one time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from enginewright.clients.prometheus import PrometheusClient
from enginewright.clients.triton import TritonClient
from enginewright.core.scaling import Capacity, ScaleLimits
from enginewright.core.signals import Sample, Spent
from enginewright.observe.keys import Key
from enginewright.observe.signals import JUDGED, Signals, Target
from enginewright.observe.window import Window
from scale_study.pages import pages
from scale_study.place import enter

QUEUE = ScaleLimits(min_replicas=1, max_replicas=3, target=4, bounded=True)
MEASURED = Capacity(throughput=100.0, curve=((1, 0.01), (8, 0.03)), objective_seconds=0.1, cold_start_seconds=20.0)
# Ages in seconds of the samples that each window begins with: as many as it holds after an hour.
AGES = (*range(3600, 120, -10), *range(120, 0, -1))
SETTLED = 5.0
# Seconds for an answer: on a busy machine one that is late is a reading all the same.
DEADLINE = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="scale_study.reading", description=__doc__)
    parser.add_argument("--n", type=int, default=300, help="replicas (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="(default %(default)s)")
    parser.add_argument("--by", choices=("queue", "measured"), nargs="+", default=["queue", "measured"])
    options = parser.parse_args()
    enter("scale_study.reading")
    found = {by: asyncio.run(_cost(options.n, options.seconds, MEASURED if by == "measured" else None))
             for by in options.by}
    print(json.dumps(found, indent=2))


async def _cost(n: int, seconds: float, capacity: Capacity | None) -> dict[str, float]:
    """Over ``seconds``, of ``n`` replicas in which no request waits."""
    count = 0

    def scraped(_: str, answered: bool) -> None:
        nonlocal count
        count += answered

    async with pages(), TritonClient(deadline=DEADLINE) as triton, PrometheusClient() as prometheus:
        signals = Signals(triton, prometheus, wake=lambda _: None, clock=time.monotonic, scraped=scraped,
                          readings=float(JUDGED * n))
        for number in range(n):
            key, pod = Key("studied", f"m-{number}"), f"m-{number}-0"
            address = f"10.100.{number >> 8}.{number & 255}"
            signals.watch(key, Target(replicas={pod: address}, current=1, limits=QUEUE, capacity=capacity))
            _fill(signals._watched[key].window, pod)
            await asyncio.sleep(1.0 / n)
        await asyncio.sleep(SETTLED)
        count, began, used = 0, time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        used, took = time.process_time() - used, time.monotonic() - began
        await signals.close()
    return {"readings_per_s": round(count / took, 1), "cpu_ms_a_reading": round(1000 * used / count, 3)}


def _fill(window: Window, pod: str) -> None:
    now = time.monotonic()
    for age in AGES:
        window.add(Sample(time=now - age, ready=1, pending={pod: 0.0}, arrived=0.0, inflight=0.0,
                          served={pod: 0.0}, spent={pod: Spent(1.0)}))


if __name__ == "__main__":
    main()
