"""``enginewright-build mlperf``: LoadGen's verdicts on an engine, with its logs, by hand and after the build."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import multiprocessing
import os
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.contract import EXIT_OK, EXIT_USER, REPORT_PAGE, ContractError, dumps
from enginewright_builder.engine_store.manifest import VerificationError
from enginewright_builder.errors import BuilderError
from enginewright_builder.load import run_on_time
from enginewright_builder.loadgen import sut
from enginewright_builder.loadgen.logs import METRICS, Run, read_run
from enginewright_builder.loadgen.result import RESULT_FILE, MlperfResult, ScenarioResult
from enginewright_builder.loadgen.samples import Row, Samples
from enginewright_builder.loadgen.scenarios import (
    MULTI_STREAM,
    MULTI_STREAM_SAMPLES,
    OFFICIAL_SECONDS,
    OFFLINE,
    SCENARIOS,
    SERVER,
    SINGLE_STREAM,
    Target,
)
from enginewright_builder.mlperf.engine import Engine, open_engine, samples
from enginewright_builder.mlperf.pilot import Pilot, fly
from enginewright_builder.mlperf.search import OFFLINE_MARGIN, STREAM_MARGIN, counts, next_target
from enginewright_builder.report import render
from enginewright_builder.system import available_cpus, cpu_name
from enginewright_builder.triton.server import TritonServer

ABSENT = ("LoadGen is not installed. The extra mlperf brings it: pip install 'enginewright[mlperf]', or the package "
          "mlcommons-loadgen beside a clone")


@dataclass(frozen=True, kw_only=True)
class Served:
    """``url`` is gRPC's ``host:port``; ``version`` is Triton's, empty where the server ran before."""

    url: str
    version: str = ""


def mlperf(words: Sequence[str]) -> int:
    """0 where LoadGen calls all scenarios VALID and no request failed; 2 where not, and for bad input."""
    options = _parser().parse_args(words)
    try:
        if not sut.is_installed():
            raise ValueError(ABSENT)
        result = run_on_time(_measure(options, shlex.join(["enginewright-build", "mlperf", *words])))
    except (BuilderError, VerificationError, ContractError, OSError, ValueError) as error:
        remedy = f" ({error.remedy})" if isinstance(error, BuilderError) and error.remedy else ""
        print(f"mlperf: {error}{remedy}", file=sys.stderr)
        return EXIT_USER
    except KeyboardInterrupt:
        print(f"mlperf: interrupted; {options.output} has the logs of the runs until now", file=sys.stderr)
        return EXIT_USER
    print("\n".join(text(result)))
    print(f"logs, {RESULT_FILE} and {REPORT_PAGE}: {options.output}")
    return EXIT_OK if all(one.run.valid for one in result.scenarios) else EXIT_USER


async def _measure(options: argparse.Namespace, command: str) -> MlperfResult:
    engine = open_engine(options.engine)
    scenarios = dict.fromkeys(options.scenario or SCENARIOS)
    latency_ms = _latency(options, engine) if SERVER in scenarios else 0
    rows, origin = samples(engine.report.interface, options.data, missing=engine.takes_missing)
    output = _fresh(options.output)
    name = options.model or engine.report.model_name
    async with _served(engine, name, options.url) as served:
        known = Samples(name, rows)
        best = engine.report.sweep.best if engine.report.sweep else None
        pilot = await fly(served.url, known, most=engine.most, instances=engine.report.serving.instance_count,
                          concurrency=best.concurrency if best else 1, seconds=options.seconds)
        if pilot.failed:
            raise ValueError(f"{pilot.failed} requests failed before LoadGen was asked: {pilot.message}")
        drives = _Drives(served.url, name, rows, engine.most, pilot, output)
        found = []
        for scenario in scenarios:
            first = first_target(scenario, pilot, options.seconds, latency_ms, options.target_qps)
            found.append(await drives.scenario(first, fixed=options.target_qps is not None))
    result = MlperfResult(
        model_name=name, fingerprint=engine.report.fingerprint, command=command, loadgen=found[0].run.version,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), server=served.version,
        url=options.url, client=cpu_name(), cores=available_cpus(), samples=len(rows), origin=origin,
        seconds=options.seconds, official=options.seconds >= OFFICIAL_SECONDS, latency_ms=latency_ms,
        scenarios=tuple(found))
    (output / RESULT_FILE).write_text(dumps(result, indent=2) + "\n", encoding="utf-8")
    (output / REPORT_PAGE).write_text(render(engine.report, result), encoding="utf-8")
    return result


def first_target(scenario: str, pilot: Pilot, seconds: float, latency_ms: int = 0, qps: float | None = None) -> Target:
    """What LoadGen is to expect at first. ``qps`` is of ``Server`` alone."""
    values: dict[str, Callable[[], float]] = {
        OFFLINE: lambda: pilot.rate * OFFLINE_MARGIN,
        SERVER: lambda: qps or pilot.alone_rate,
        SINGLE_STREAM: lambda: pilot.single_ms * STREAM_MARGIN,
        MULTI_STREAM: lambda: pilot.multi_ms * STREAM_MARGIN,
    }
    return Target(scenario=scenario, value=float(f"{values[scenario]():.4g}"), seconds=seconds,
                  latency_ms=latency_ms if scenario == SERVER else 0)


@dataclass(frozen=True)
class _Drives:
    url: str
    name: str
    rows: Sequence[Row]
    most: int
    pilot: Pilot
    output: Path

    async def scenario(self, first: Target, *, fixed: bool) -> ScenarioResult:
        runs: list[Run] = []
        while target := next_target(first, runs, fixed=fixed):
            name = f"{target.scenario}/run-{len(runs) + 1}"
            (self.output / name).mkdir(parents=True)
            runs.append(await self._run(target, name))
            print(_line(target, runs[-1]), file=sys.stderr, flush=True)
        most, in_flight = self._way(first.scenario)
        return ScenarioResult(scenario=first.scenario, run=counts(first, runs), runs=tuple(runs),
                              samples_per_request=most, in_flight=in_flight)

    async def _run(self, target: Target, name: str) -> Run:
        folder = self.output / name
        most, in_flight = self._way(target.scenario)
        task = sut.Drive(url=self.url, model=self.name, rows=self.rows, target=target, folder=folder, most=most,
                         in_flight=in_flight)
        errors = await in_a_process(task)
        return read_run(folder, target, errors, name)

    def _way(self, scenario: str) -> tuple[int, int]:
        """Samples in a request at most, and requests of ``Offline`` in flight."""
        if scenario == OFFLINE:
            return self.pilot.most, self.pilot.in_flight
        return (min(self.most, MULTI_STREAM_SAMPLES) if scenario == MULTI_STREAM else 1), 0


async def in_a_process(task: sut.Drive) -> dict[str, int]:
    """Failed requests by kind. Cancelling it ends the process as well. Raises what :func:`sut.drive` raises."""
    os.environ["PYTHONSAFEPATH"] = "1"  # else spawn's process looks for its first modules in the current folder
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=sut.report, args=(task, sender), daemon=True)
    process.start()
    sender.close()
    try:
        answer = await asyncio.to_thread(receiver.recv)
    except EOFError:
        raise ValueError(f"LoadGen's process ended; {task.folder} has what it wrote until then") from None
    finally:
        process.kill()
        process.join()
    if isinstance(answer, Exception):
        raise answer
    return dict(answer)


@contextlib.asynccontextmanager
async def _served(engine: Engine, name: str, url: str) -> AsyncIterator[Served]:
    """On a server of our own, unless one is given."""
    if url:
        yield Served(url=url)
        return
    with tempfile.TemporaryDirectory(prefix="enginewright-mlperf-") as folder:
        engine.linked(Path(folder), name)
        async with TritonServer(Path(folder), models=(name,)) as server:
            yield Served(url=server.grpc_url, version=server.version)


def _latency(options: argparse.Namespace, engine: Engine) -> int:
    """In whole milliseconds, as LoadGen's configuration has it. Raises ``ValueError``."""
    found = int(options.latency_ms or engine.report.objective.latency_ms)
    if found < 1:
        raise ValueError("Server needs a latency, and the build had none of 1 ms or more as its objective: give "
                         "--latency-ms, or leave Server out with --scenario")
    return found


def _fresh(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"--output {folder} is not empty: logs of other runs would be taken for these")
    return folder


def text(result: MlperfResult) -> list[str]:
    """For people, a line for each scenario and for each reason why one is not valid."""
    lines = []
    for one in result.scenarios:
        lines.append(f"{one.scenario:<13}{_verdict(one.run):<9}{_value(one.scenario, one.run)}  ({one.run.folder})")
        lines += [f"{'':<13}{reason}" for reason in one.run.reasons]
    if not result.official:
        lines.append(f"{'':<13}Runs of {result.seconds:g} s: LoadGen's verdicts hold for them, but a submission takes "
                     f"{OFFICIAL_SECONDS:g} s.")
    return lines


def _line(target: Target, run: Run) -> str:
    unit = "/s" if target.scenario in (OFFLINE, SERVER) else " ms"
    return (f"{run.folder}: {run.seconds:g} s, target {run.target:g}{unit}: {_verdict(run)}, "
            f"{_value(target.scenario, run)}")


def _verdict(run: Run) -> str:
    return "failed" if run.errors else run.loadgen


def _value(scenario: str, run: Run) -> str:
    return f"{run.value:,.2f} {METRICS[scenario][2]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="enginewright-build mlperf",
        description="Ask MLCommons' LoadGen about an engine in MLPerf's scenarios, served on a tritonserver that is "
                    "started here. Exit status: 0 where all are VALID, 2 where one is not.")
    parser.add_argument("engine", type=Path, metavar="ENGINE", help="folder of an engine in a store, as a build names "
                                                                    "it")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR",
                        help=f"new folder for LoadGen's logs, {RESULT_FILE} and a report with the scenarios in it")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, metavar="NAME",
                        help=f"{', '.join(SCENARIOS)}; may be given several times (default: all)")
    parser.add_argument("--data", type=Path, metavar="FILE", help=".npz or .jsonl of samples (default: made up)")
    parser.add_argument("--latency-ms", type=_whole, metavar="MS", help="what 99 %% of Server's queries keep under "
                                                                        "(default: the build's objective)")
    parser.add_argument("--target-qps", type=_positive, metavar="N", help="Server: try this rate alone, and look for "
                                                                          "no larger one")
    parser.add_argument("--seconds", type=_positive, default=OFFICIAL_SECONDS, metavar="S",
                        help="shortest duration of a run (default %(default)g, MLPerf's own)")
    parser.add_argument("--url", default="", metavar="HOST:PORT", help="gRPC of a server that has the engine already")
    parser.add_argument("--model", default="", metavar="NAME", help="the engine's name there (default: the build's)")
    return parser


def _whole(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"got {word!r}, expected whole milliseconds, 1 or more: LoadGen takes no "
                                         "parts of one")
    return int(word)


def _positive(word: str) -> float:
    number = float(word)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"got {word!r}, expected a number above 0")
    return number
