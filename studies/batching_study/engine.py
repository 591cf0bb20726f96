"""``python -m batching_study.engine``: a given engine under shifting loads, with each fixed setting of a small grid and
with the rule that follows the traffic.

The engine is a Triton model repository as ``enginewright-build`` publishes it, on a GPU or without one. First the rule
follows the loads one after another, in one model, as it would beside a server. Then all fixed settings, and those that
the rule ended with, race: they lie in the same server as models of their own, and take turns in short pieces. One JSON
file says what each took, and whether the rule is worth its place: a p99 that is shorter by a tenth at equal cost.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import model_config_pb2 as schema

from batching_study.__main__ import rounded
from batching_study.crowd import Asked, Crowd, pooled
from batching_study.study import LONG, SHORT, percentile
from batching_study.traffic import Phase, kinds
from enginewright.batcher.follower import Follower
from enginewright.batcher.serve import PERIOD
from enginewright.batcher.tally import Tally
from enginewright.clients.model_control import ModelControl
from enginewright.clients.triton import TritonClient
from enginewright.core.batching import SafeSet, Setting, begin
from enginewright.core.batching.safe import MICROSECONDS
from enginewright_builder.load import Channels, closed_loop, encode, run_on_time
from enginewright_builder.sweep.curve import curve_batches
from enginewright_builder.triton.client import Server
from enginewright_builder.triton.model_config import parse_text, to_text
from enginewright_builder.triton.repository import CONFIG_FILE, place
from enginewright_builder.triton.server import TritonServer
from grids.record import hardware, request_of

FOLLOWED = "followed"
READY_SECONDS = 300.0
# Of the time after the model's curve is known, what the rule gets; the race gets the rest.
FOLLOWING = 0.5
# Seconds: what comes before a piece is not counted, and a turn of both takes at least so long.
ROUNDS, WARMUP, LEAST_TURN = 2, 0.3, 0.8
# The part of a phase at its end in which the rule has settled, if it does so at all.
SETTLED = 0.25
# Queue delays that practitioners set by hand, in microseconds.
PRACTICE = (5_000, 20_000)
CROWDS = (4, 12)
LOADING = 4
# What the rule must win, and what it may cost.
WIN, EQUAL = 0.90, 0.98
LOADS = ("lone", "crowd 4", "stream", "crowd 12", "fans of 8")
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options:
    repository: Path
    model: str
    gpus: tuple[int, ...]
    seconds: float
    processes: int
    instances: int = 0  # 0: as the build chose


class Rested(Follower):
    """A shift that comes long after the one before: what bounds trials by time does not hold the rule back. A run of
    minutes has no time for that, and hours lie between a day's shifts."""

    def rest(self) -> None:
        fresh = begin(self._clock(), self._safe)
        self._state = replace(self._state, tried=None, credit=fresh.credit, barred=())


async def study(options: Options, say: Any = print) -> Row:
    ends = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(prefix="enginewright-batching-") as scratch:
        root, source = Path(scratch), options.repository / options.model
        config = parse_text((source / CONFIG_FILE).read_text())
        for group in config.instance_group:
            group.count = options.instances or group.count
        write(source, root / FOLLOWED, config, setting_of(config))
        async with TritonServer(root, gpus=options.gpus, ready_seconds=READY_SECONDS) as server:
            seconds = await server.load(FOLLOWED)
            async with Crowd(server.grpc_url, options.processes) as crowd:
                bench = Bench(server, crowd, source, config, root)
                safe = await bench.measure(seconds)
                say(f"loads in {seconds:.1f} s; curve, ms: "
                    + ", ".join(f"{batch}: {one * 1e3:.2f}" for batch, one in safe.curve))
                loading = 2 + 3 * seconds  # of the fixed settings, four at a time
                left = ends - time.monotonic() - loading
                followed = await bench.follow(phases(safe, FOLLOWING * left / len(LOADS)), safe, say)
                settings = fixed_settings(safe)
                chosen = [one for one in (row.setting for row in followed.values()) if one]
                await bench.load(list(dict.fromkeys([*settings, *chosen])))
                race = await bench.race(phases(safe, 0.0), list(dict.fromkeys([*settings, *chosen])), ends, say)
            return {
                "hardware": hardware(options.gpus), "versions": {"tritonserver": server.version},
                "command": shlex.join(["python", "-m", "batching_study.engine", *sys.argv[1:]]),
                "engine": {"max_batch_size": config.max_batch_size, "shipped": str(safe.default), "instances": sum(
                    group.count for group in config.instance_group), "load_seconds": seconds},
                "curve_ms": {str(batch): one * 1e3 for batch, one in safe.curve},
                "phase_seconds": FOLLOWING * left / len(LOADS), "fixed": [str(one) for one in settings],
                **verdict(race, followed, settings), "took_seconds": time.monotonic() - ends + options.seconds,
            }


def phases(safe: SafeSet, seconds: float) -> list[Phase]:
    alone = safe.curve[0][1]
    made = kinds(alone)
    found = [made[name](seconds) for name in LOADS]
    # Lone requests that come often enough to have a p99 within seconds.
    return [replace(found[0], rate=0.3 / alone), *found[1:]]


def fixed_settings(safe: SafeSet) -> list[Setting]:
    """What the build shipped; no delay, short ones, those of practice, and one that suits each crowd."""
    short = round(SHORT * safe.curve[0][1] * MICROSECONDS)
    crowds = [Setting(delay_us=round(LONG * safe.seconds(crowd / 2) * MICROSECONDS), preferred=(crowd, safe.max_batch))
              for crowd in CROWDS if crowd < safe.max_batch]
    return list(dict.fromkeys([safe.default, Setting(), *(Setting(delay_us=one) for one in (short, *PRACTICE)),
                               *crowds]))


@dataclass(kw_only=True)
class Phased:
    """What the rule did in one phase: ``setting`` is what it ended with, ``changes`` are in words."""

    asked: Asked
    seconds: float
    setting: Setting | None
    changes: list[str]


class Bench:
    def __init__(self, server: Server, crowd: Crowd, source: Path, config: schema.ModelConfig, root: Path) -> None:
        self._server, self._crowd, self._source, self._config, self._root = server, crowd, source, config, root
        self._inputs = request_of(source, config)

    async def measure(self, load_seconds: float) -> SafeSet:
        """As a build does it: each batch alone."""
        curve: list[tuple[int, float]] = []
        async with Channels(self._server.grpc_url, count=1) as channels:
            for batch in curve_batches(self._config.max_batch_size):
                inputs: dict[str, NDArray[Any]] = {
                    name: np.repeat(array, batch, axis=0) for name, array in self._inputs.items()}
                result = await closed_loop(channels, [encode(FOLLOWED, inputs, batch=batch)], concurrency=1,
                                           seconds=0.6, warmup_seconds=WARMUP)
                curve.append((batch, max(result.p50_ms / 1e3, curve[-1][1] if curve else 0.0)))
        return SafeSet(default=setting_of(self._config), curve=tuple(curve), max_batch=self._config.max_batch_size,
                       load_seconds=load_seconds, longest_delay_us=round(2 * curve[-1][1] * MICROSECONDS))

    async def follow(self, wanted: Sequence[Phase], safe: SafeSet, say: Any) -> dict[str, Phased]:
        """By the code that runs beside a server."""
        metrics_port, http_port = (int(url.rsplit(":", 1)[1])
                                   for url in (self._server.metrics_address, self._server.http_url))
        found: dict[str, Phased] = {}
        async with ModelControl() as control, TritonClient() as metrics:
            follower = Rested(FOLLOWED, safe, control, metrics, Tally(), time.monotonic, http_port=http_port,
                              metrics_port=metrics_port)
            for number, phase in enumerate(wanted):
                follower.rest()
                changes: list[str] = []
                looking = asyncio.create_task(_look(follower, changes))
                asked = await self._crowd.ask(self._payload(FOLLOWED), phase, number)
                looking.cancel()
                await asyncio.wait({looking})
                found[phase.name] = Phased(asked=asked, seconds=phase.seconds, setting=follower.told().setting,
                                           changes=changes)
                say("\n".join([f"{phase.name}, followed: p99 {percentile(asked.calls.latencies):.2f} ms, settled "
                               f"{percentile(settled(found[phase.name])):.2f} ms", *changes]))
        return found

    async def load(self, settings: Sequence[Setting]) -> None:
        gate = asyncio.Semaphore(LOADING)

        async def one(setting: Setting) -> None:
            write(self._source, self._root / name_of(setting), self._config, setting)
            async with gate:
                await self._server.load(name_of(setting))

        await asyncio.gather(*map(one, settings))

    async def race(self, wanted: Sequence[Phase], settings: Sequence[Setting], ends: float, say: Any
                   ) -> dict[str, dict[Setting, Row]]:
        """Each setting under each load, in pieces that lie close together, in an order drawn by lot."""
        order = random.Random(0)  # noqa: S311 - not a secret
        pieces: dict[tuple[str, Setting], list[tuple[Asked, Row]]] = {}
        rounds = ROUNDS if ends - time.monotonic() > ROUNDS * len(wanted) * len(settings) * LEAST_TURN else 1
        turns = [(number, phase, setting) for number, phase in itertools.product(range(rounds), wanted)
                 for setting in order.sample(list(settings), len(settings))]
        for index, (number, phase, setting) in enumerate(turns):
            piece = max(LEAST_TURN, (ends - time.monotonic()) / (len(turns) - index)) - WARMUP
            pieces.setdefault((phase.name, setting), []).append(
                await self._piece(replace(phase, seconds=piece), setting, number))
        found: dict[str, dict[Setting, Row]] = {}
        for (name, setting), mine in pieces.items():
            found.setdefault(name, {})[setting] = row(pooled([asked for asked, _ in mine]), [one for _, one in mine])
        for name, rows in found.items():
            say(f"{name}, p99: " + "; ".join(f"{setting} {one['p99_ms']:.2f} ms" for setting, one in rows.items()))
        return found

    async def _piece(self, phase: Phase, setting: Setting, seed: int) -> tuple[Asked, Row]:
        payload = self._payload(name_of(setting))
        await self._crowd.ask(payload, replace(phase, seconds=WARMUP), seed)
        before = await self._spent(name_of(setting))
        asked = await self._crowd.ask(payload, phase, seed)
        after = await self._spent(name_of(setting))
        return asked, {"seconds": phase.seconds, **{key: after[key] - before[key] for key in after}}

    async def _spent(self, model: str) -> dict[str, float]:
        stats = await self._server.statistics(model)
        return {"requests": float(stats["inference_stats"]["success"]["count"]),
                "executions": float(stats["execution_count"]),
                "device_seconds": sum(float(one["compute_infer"]["ns"]) for one in stats["batch_stats"]) / 1e9}

    def _payload(self, model: str) -> bytes:
        return encode(model, self._inputs, batch=1).payload


async def _look(follower: Rested, changes: list[str]) -> None:
    began = time.monotonic()
    for tick in itertools.count(1):
        await asyncio.sleep(max(0.0, began + tick * PERIOD - time.monotonic()))
        before = follower.told()
        await follower.look()
        after = follower.told()
        if (after.setting, after.phase) != (before.setting, before.phase):
            changes.append(f"{time.monotonic() - began:.0f} s, {after.phase}: {after.setting}: {after.why}")


def settled(phased: Phased) -> list[float]:
    """Seconds of the requests of the phase's end."""
    since = phased.seconds - SETTLED * phased.seconds
    return [taken for due, taken in zip(phased.asked.calls.due, phased.asked.calls.latencies, strict=True)
            if due >= since]


def row(asked: Asked, spent: Sequence[Mapping[str, float]]) -> Row:
    """``device_ms`` is what the device computed for one request: what it costs."""
    whole = {key: sum(one[key] for one in spent) for key in spent[0]}
    requests = max(1.0, whole["requests"])
    return {"p50_ms": percentile(asked.calls.latencies, 0.5), "p99_ms": percentile(asked.calls.latencies),
            "requests": len(asked.calls.latencies), "failed": asked.calls.failed,
            "throughput": len(asked.calls.latencies) / whole["seconds"],
            "mean_batch": requests / max(1.0, whole["executions"]),
            "device_ms": whole["device_seconds"] * 1e3 / requests, "busiest_client": asked.busiest}


def verdict(race: Mapping[str, Mapping[Setting, Row]], followed: Mapping[str, Phased], fixed: Sequence[Setting]) -> Row:
    """Three ways to count the rule, each over the best fixed setting: ``live`` with its search, ``settled`` at the end
    of each phase, and ``chosen``, what it ended with, in the race. The best fixed setting is the one that has the
    shortest p99 over all loads, in hindsight; ratios below 1 are in the rule's favour."""
    best = min(fixed, key=lambda setting: _mean(rows[setting]["p99_ms"] for rows in race.values()))
    loads = {name: _load(rows, followed[name], fixed, best) for name, rows in race.items()}
    ratios = {key: _mean(one["over_best_fixed"].get(key, 1.0) for one in loads.values())
              for key in ("live", "settled", "chosen")}
    # Open loads are served as they come; what a replica does at most shows where clients wait for it.
    throughput = min(one["throughput_over_best_fixed"] for name, one in loads.items() if name.startswith("crowd"))
    return {"best_fixed": str(best), "loads": loads, "p99_over_best_fixed": ratios, "least_throughput": throughput,
            "wins": {key: one <= WIN and throughput >= EQUAL for key, one in ratios.items()}}


def _load(rows: Mapping[Setting, Row], ours: Phased, fixed: Sequence[Setting], best: Setting) -> Row:
    here = min(fixed, key=lambda setting: rows[setting]["p99_ms"])
    p99 = {"live": percentile(ours.asked.calls.latencies), "settled": percentile(settled(ours))}
    chosen = rows.get(ours.setting) if ours.setting else None
    if chosen:
        p99["chosen"] = chosen["p99_ms"]
    throughput = len(settled(ours)) / (SETTLED * ours.seconds)
    return {
        "fixed": {str(setting): rows[setting] for setting in fixed}, "best_fixed_here": str(here), "chosen": chosen,
        "followed": {"setting": str(ours.setting), "changes": ours.changes, "failed": ours.asked.calls.failed,
                     "p50_ms": percentile(ours.asked.calls.latencies, 0.5), "p99_ms": p99,
                     "settled_throughput": throughput, "busiest_client": ours.asked.busiest},
        "over_best_fixed": {key: one / rows[best]["p99_ms"] for key, one in p99.items()},
        "over_best_fixed_here": {key: one / rows[here]["p99_ms"] for key, one in p99.items()},
        "throughput_over_best_fixed": throughput / rows[best]["throughput"],
        "device_over_best_fixed": chosen["device_ms"] / max(rows[best]["device_ms"], 1e-9) if chosen else None,
    }


def _mean(values: Any) -> float:
    return statistics.geometric_mean([max(one, 1e-6) for one in values])


def setting_of(config: schema.ModelConfig) -> Setting:
    batching = config.dynamic_batching
    return Setting(delay_us=batching.max_queue_delay_microseconds, preferred=tuple(batching.preferred_batch_size))


def name_of(setting: Setting) -> str:
    return "-".join(["fixed", str(setting.delay_us), *map(str, setting.preferred)])


def write(source: Path, folder: Path, config: schema.ModelConfig, setting: Setting) -> None:
    """The model once more, under another name and with another batching. Files are linked where that can be."""
    shutil.copytree(source, folder, copy_function=lambda one, other: place(Path(one), Path(other)))
    changed = schema.ModelConfig()
    changed.CopyFrom(config)
    changed.name = folder.name
    changed.ClearField("dynamic_batching")
    changed.dynamic_batching.max_queue_delay_microseconds = setting.delay_us
    changed.dynamic_batching.preferred_batch_size.extend(setting.preferred)
    (folder / CONFIG_FILE).unlink()
    (folder / CONFIG_FILE).write_text(to_text(changed))


def main() -> int:
    given = _parser().parse_args()
    models = sorted(one.parent.name for one in given.repository.glob(f"*/{CONFIG_FILE}"))
    model = given.model or (models[0] if len(models) == 1 else "")
    if model not in models:
        raise SystemExit(f"{given.repository} has the models {', '.join(models) or 'none'}; --model names one of them")
    gpus = tuple(int(one) for one in given.gpus.split(",") if one)
    found = run_on_time(study(Options(repository=given.repository.resolve(), model=model, gpus=gpus,
                                      seconds=given.seconds, processes=given.processes, instances=given.instances)))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(rounded(found), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(rounded({key: found[key] for key in (
        "best_fixed", "p99_over_best_fixed", "least_throughput", "wins", "took_seconds")}), ensure_ascii=False))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="batching_study.engine", description=__doc__)
    parser.add_argument("--repository", type=Path, required=True,
                        help="model repository that enginewright-build wrote, STORE/models")
    parser.add_argument("--model", default="", help="a model of the repository; default the only one")
    parser.add_argument("--gpus", default="", help="numbers separated by commas; default none")
    parser.add_argument("--seconds", type=float, default=220.0, help="of the whole run, about")
    parser.add_argument("--processes", type=int, default=4, help="that clients are shared out among")
    parser.add_argument("--instances", type=int, default=0, help="of the model; default as the build chose")
    parser.add_argument("--output", type=Path, default=Path("build/bench/batching-engine.json"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
