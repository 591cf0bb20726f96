"""On a real tritonserver: what the rule does when the traffic shifts, and what its settings are worth.

First the phases one after another, followed. Then, for each kind of traffic, all settings in turn, in short pieces over
and over: on a machine that others use, only pieces that lie close together can be compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from batching_study.asking import Calls, ask
from batching_study.model import write_perceptron, write_stand_in
from batching_study.study import CURVES, LONG, MAX_BATCH, SHORT, percentile
from batching_study.traffic import Phase
from enginewright.batcher.follower import Follower
from enginewright.batcher.serve import PERIOD
from enginewright.batcher.tally import Tally
from enginewright.clients.model_control import ModelControl
from enginewright.clients.triton import TritonClient
from enginewright.core.batching import SafeSet, Setting
from enginewright.core.batching.safe import MICROSECONDS
from enginewright_builder.load import Channels, Request, closed_loop, encode
from enginewright_builder.sweep.curve import curve_batches
from enginewright_builder.triton.client import Server
from enginewright_builder.triton.ports import HOST
from enginewright_builder.triton.server import TritonServer

MODEL = "model"
# Seconds of a piece, without its first, in which clients fall into step.
PIECE, LONG_PIECE, WARMUP = 6.0, 20.0, 1.0
# One request alone on a stand-in: so long that a busy machine hardly adds to it.
ALONE_REAL = 0.1
Say = Callable[[str], None]


@dataclass
class Followed:
    """``chosen`` is what each phase ended with, ``changes`` are in words."""

    calls: Calls = field(default_factory=Calls)
    loads: list[float] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    chosen: dict[str, Setting] = field(default_factory=dict)


async def study(model: str, rounds: int, seconds: float, say: Say = print) -> dict[str, Any]:
    """``rounds`` pieces of each setting under each kind of traffic, after phases of ``seconds`` that are followed."""
    async with opened(model) as bench:
        safe = await bench.measure()
        say(f"curve, ms: {', '.join(f'{batch}: {one * 1e3:.1f}' for batch, one in safe.curve)}")
        lone, four, eight = _phases(safe, seconds)
        followed = await bench.follow((lone, four, lone, eight), safe)
        answered = len(followed.calls.latencies)
        say("\n".join([*followed.changes, f"{answered} answered, {followed.calls.failed} failed"]))
        pieces = await bench.compare((lone, four, eight), _settings(safe, followed), rounds, PIECE, say)
    return {
        "curve_ms": {str(batch): one * 1e3 for batch, one in safe.curve},
        "followed": {"phase_seconds": seconds, "answered": len(followed.calls.latencies),
                     "failed": followed.calls.failed, "load_seconds": followed.loads, "changes": followed.changes,
                     "chosen": {name: str(one) for name, one in followed.chosen.items()}},
        "pieces": {"seconds": PIECE, "rounds": rounds, "failed": sum(one.failed for one in pieces.values()),
                   "kinds": table(pieces, safe.default)},
    }


async def shift(model: str, rounds: int, seconds: float, say: Say = print) -> dict[str, Any]:
    """A crowd of four for ``seconds``, then one of eight, followed: p99 of all of it, beside each fixed setting's.
    Under one that is fixed nothing changes with time, so that ``rounds`` pieces of each crowd stand for as long a
    run."""
    async with opened(model) as bench:
        safe = await bench.measure()
        _, *crowds = _phases(safe, seconds)
        followed = await bench.follow(crowds, safe)
        say("\n".join([*followed.changes, f"{len(followed.calls.latencies)} answered, {followed.calls.failed} failed"]))
        pieces = await bench.compare(crowds, _settings(safe, Followed()), rounds, LONG_PIECE, say)
    fixed: dict[Setting, list[float]] = {}
    for (_, setting, _), calls in pieces.items():
        fixed.setdefault(setting, []).extend(calls.latencies)
    return {
        "phase_seconds": seconds, "answered": len(followed.calls.latencies),
        "failed": followed.calls.failed + sum(calls.failed for calls in pieces.values()),
        "changes": followed.changes, "p99_ms": percentile(followed.calls.latencies),
        "p95_ms": percentile(followed.calls.latencies, 0.95),
        "fixed_p99_ms": {str(setting): percentile(each) for setting, each in fixed.items()},
        "fixed_p95_ms": {str(setting): percentile(each, 0.95) for setting, each in fixed.items()},
    }


@contextlib.asynccontextmanager
async def opened(model: str) -> AsyncIterator[Bench]:
    """``model`` is ``onnx`` or a curve of :data:`CURVES`, which a stand-in keeps."""
    with tempfile.TemporaryDirectory(prefix="enginewright-batching-") as folder:
        root = Path(folder) / "repository"
        root.mkdir()
        if model == "onnx":
            width = write_perceptron(root, MODEL, MAX_BATCH)
        else:
            curve = {batch: times * ALONE_REAL for batch, times in CURVES[model].items()}
            width = write_stand_in(root, MODEL, MAX_BATCH, curve)
        async with (TritonServer(root, models=(MODEL,)) as server, Channels(server.grpc_url, count=4) as channels,
                    ModelControl() as control, TritonClient() as metrics):
            yield Bench(server, channels, control, metrics, width)


def _settings(safe: SafeSet, followed: Followed) -> list[Setting]:
    alone = safe.curve[0][1] * MICROSECONDS
    short, long = round(SHORT * alone), round(LONG * safe.seconds(4) * MICROSECONDS)
    fixed = [safe.default, Setting(delay_us=short), Setting(delay_us=long, preferred=(4, MAX_BATCH)),
             Setting(delay_us=long, preferred=(8, MAX_BATCH))]
    return list(dict.fromkeys([*fixed, *followed.chosen.values()]))


def _phases(safe: SafeSet, seconds: float) -> list[Phase]:
    lone = Phase(name="lone requests", seconds=seconds, rate=0.3 / safe.curve[0][1])
    return [lone, *(Phase(name=f"crowd of {clients}", seconds=seconds, clients=clients) for clients in (4, 8))]


def table(pieces: dict[tuple[str, Setting, int], Calls], default: Setting) -> dict[str, Any]:
    """Medians over the rounds; ratios to the default's piece of the same round."""
    found: dict[str, Any] = {}
    for kind, setting in dict.fromkeys((kind, setting) for kind, setting, _ in pieces):
        mine = {number: calls.latencies for (one, other, number), calls in pieces.items()
                if (one, other) == (kind, setting)}
        row: dict[str, float] = {}
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            row[f"{name}_ms"] = statistics.median(percentile(each, share) for each in mine.values())
            row[f"{name}_over_default"] = statistics.median(
                percentile(each, share) / percentile(pieces[kind, default, number].latencies, share)
                for number, each in mine.items())
        found.setdefault(kind, {})[str(setting)] = row
    return found


class Bench:
    def __init__(self, server: Server, channels: Channels, control: ModelControl, metrics: TritonClient,
                 width: int) -> None:
        self._channels, self._control, self._metrics = channels, control, metrics
        self._http, self._scraped = (int(url.rsplit(":", 1)[1]) for url in (server.http_url, server.metrics_address))
        self._load_seconds = server.start_seconds
        self._width = width
        self._request = _request(1, width)

    async def measure(self) -> SafeSet:
        """As a build does it: each batch alone."""
        curve: list[tuple[int, float]] = []
        for batch in curve_batches(MAX_BATCH):
            result = await closed_loop(self._channels, [_request(batch, self._width)], concurrency=1, seconds=1.0,
                                       warmup_seconds=0.3)
            curve.append((batch, max(result.p50_ms / 1e3, curve[-1][1] if curve else 0.0)))
        return SafeSet(default=Setting(), curve=tuple(curve), max_batch=MAX_BATCH, load_seconds=self._load_seconds,
                       longest_delay_us=round(2 * curve[-1][1] * MICROSECONDS))

    async def follow(self, phases: Sequence[Phase], safe: SafeSet) -> Followed:
        followed = Followed()
        follower = asyncio.create_task(self._follow(followed, safe))
        try:
            for number, phase in enumerate(phases):
                followed.calls = await self._phase(phase, number, followed.calls)
                followed.chosen[phase.name] = await self._control.batching(HOST, MODEL, self._http)
        finally:
            follower.cancel()
            await asyncio.wait({follower})
        return followed

    async def compare(self, kinds: Sequence[Phase], settings: Sequence[Setting], rounds: int, piece: float, say: Say
                      ) -> dict[tuple[str, Setting, int], Calls]:
        pieces = {}
        for number, kind in itertools.product(range(rounds), kinds):
            for setting in settings[::-1] if number % 2 else settings:
                await self._control.apply(HOST, MODEL, setting, self._http)
                await self._phase(replace(kind, seconds=WARMUP), number, Calls())
                pieces[kind.name, setting, number] = await self._phase(replace(kind, seconds=piece), number, Calls())
            say(f"round {number + 1}, {kind.name}, p99: " + ", ".join(
                f"{setting} {percentile(pieces[kind.name, setting, number].latencies):.1f} ms" for setting in settings))
        return pieces

    async def _follow(self, followed: Followed, safe: SafeSet) -> None:
        """By the code that runs beside a server."""
        began = time.monotonic()
        follower = Follower(MODEL, safe, self._control, self._metrics, Tally(), time.monotonic, http_port=self._http,
                            metrics_port=self._scraped)
        for tick in itertools.count(1):
            await asyncio.sleep(max(0.0, began + tick * PERIOD - time.monotonic()))
            start, before = time.monotonic(), follower.told()
            await follower.look()
            after = follower.told()
            if before.setting not in (after.setting, None):
                followed.loads.append(time.monotonic() - start)
            if (after.setting, after.phase) != (before.setting, before.phase):
                followed.changes.append(f"{start - began:.0f} s, {after.phase}: {after.setting}: {after.why}")

    async def _phase(self, phase: Phase, seed: int, calls: Calls) -> Calls:
        return await ask(self._channels, self._request.payload, phase, seed, calls)


def _request(batch: int, width: int) -> Request:
    return encode(MODEL, {"x": np.random.default_rng(batch).standard_normal((batch, width)).astype(np.float32)})
