"""The system under test, as LoadGen calls it: its queries go to a Triton server over gRPC.

LoadGen keeps settings for as long as its process lives, and ends that process when it is not content: so each run has
a process of its own, which calls :func:`report`.

LoadGen issues queries from a thread of its own, and an event loop sends them and takes answers. What a query passes
through in Python counts as its latency.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc

from enginewright_builder.load.channels import Channels
from enginewright_builder.load.runner import run_on_time
from enginewright_builder.loadgen.samples import Row, Samples
from enginewright_builder.loadgen.scenarios import MULTI_STREAM_SAMPLES, OFFLINE, Target, user_conf

USER_CONF = "user.conf"
CALL_TIMEOUT = 120.0
# How long one thread may keep the other waiting for the interpreter. Python's 5 ms would be a query's latency.
SWITCH_SECONDS = 0.0005


@dataclass(frozen=True, kw_only=True)
class Drive:
    """One run. ``url`` is the server's gRPC, ``rows`` the samples. A request has up to ``most`` samples;
    ``in_flight`` requests of ``Offline`` are on their way at once. ``folder`` is there; LoadGen's logs are left in
    it."""

    url: str
    model: str
    rows: Sequence[Row]
    target: Target
    folder: Path
    most: int = 1
    in_flight: int = 1


def is_installed() -> bool:
    return importlib.util.find_spec("mlperf_loadgen") is not None


def drive(run: Drive) -> dict[str, int]:
    """Failed requests by kind. Raises ``ConnectionError`` where there is no server, ``ValueError`` where LoadGen does
    not take its settings."""
    sys.setswitchinterval(SWITCH_SECONDS)
    return run_on_time(_drive(run))


def report(run: Drive, sender: Connection) -> None:
    """:func:`drive` in a process of its own: sends what it returns or raises."""
    try:
        sender.send(drive(run))
    except (OSError, ValueError) as error:
        sender.send(error)


async def _drive(run: Drive) -> dict[str, int]:
    loadgen: Any = importlib.import_module("mlperf_loadgen")
    samples = Samples(run.model, run.rows)
    settings = _settings(loadgen, run)
    async with Channels(run.url) as channels:
        system = _System(loadgen, channels, samples, run)
        under_test = loadgen.ConstructFastSUT(system.issue, _nothing)
        library = loadgen.ConstructQSL(len(samples), len(samples), _nothing, _nothing)
        try:
            # The last word is of a file that audits read; none is.
            await asyncio.to_thread(loadgen.StartTestWithLogSettings, under_test, library, settings,
                                    _log_settings(loadgen, run.folder), "")
        finally:
            loadgen.DestroyQSL(library)
            loadgen.DestroyFastSUT(under_test)
        return dict(system.errors)


class _System:
    def __init__(self, loadgen: Any, channels: Channels, samples: Samples, run: Drive) -> None:
        self.errors: Counter[str] = Counter()
        self._loadgen, self._channels, self._samples, self._most = loadgen, channels, samples, run.most
        self._at_once = run.in_flight if run.target.scenario == OFFLINE else MULTI_STREAM_SAMPLES
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def issue(self, answers: list[int], numbers: list[int]) -> None:
        """On LoadGen's thread: ``answers`` are what it wants ``numbers`` of samples to be answered under."""
        self._loop.call_soon_threadsafe(self._begin, answers, numbers)

    def _begin(self, answers: list[int], numbers: list[int]) -> None:
        calls = self._samples.calls(numbers, self._most)
        for _ in range(min(self._at_once, len(numbers))):
            task = self._loop.create_task(self._work(calls, answers, numbers))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, calls: Iterator[list[int]], answers: list[int], numbers: list[int]) -> None:
        for places in calls:
            try:
                request = self._samples.request([numbers[place] for place in places])
                await self._channels.call(request.payload, CALL_TIMEOUT)
            except Exception as failure:  # whatever it was: a query without an answer would hold LoadGen up forever
                self.errors[_kind(failure)] += 1
            self._loadgen.QuerySamplesComplete(
                [self._loadgen.QuerySampleResponse(answers[place], 0, 0) for place in places])


def _kind(failure: Exception) -> str:
    if isinstance(failure, grpc.aio.AioRpcError):
        return f"{failure.code().name}: {failure.details()}"
    return f"{type(failure).__name__}: {failure}"


def _settings(loadgen: Any, run: Drive) -> Any:
    conf = run.folder / USER_CONF
    conf.write_text(user_conf(run.target), encoding="utf-8")
    settings = loadgen.TestSettings()
    # 1: it is a user's, which LoadGen reads its own mlperf.conf before. The model's name picks settings of MLPerf's
    # own models there, whose rules an engine of the same name may not be held to.
    if settings.FromConfig(str(conf), "model", run.target.scenario, 1):
        raise ValueError(f"LoadGen does not take {conf}")
    settings.scenario = getattr(loadgen.TestScenario, run.target.scenario)
    settings.mode = loadgen.TestMode.PerformanceOnly
    return settings


def _log_settings(loadgen: Any, folder: Path) -> Any:
    output = loadgen.LogOutputSettings()
    output.outdir = str(folder)
    output.copy_summary_to_stdout = False
    settings = loadgen.LogSettings()
    settings.enable_trace = False
    settings.log_output = output
    return settings


def _nothing(*_: object) -> None:
    """Samples are in memory from the start, and queries are sent as they come: nothing to load or to flush."""
