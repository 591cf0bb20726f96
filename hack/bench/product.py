"""The real ``enginewright-build`` on one model with its defaults, and what it published: beside every other candidate
in one race, and as Triton serves it beside the same model as people serve it without Enginewright."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import run
from bench.published import Published
from bench.ways import MODEL, baseline_way, median_ms, saved
from bench.zoo import Entry
from enginewright_builder.contract import BUDGET_SECONDS, ContractError, Interface, Outcome, dumps
from enginewright_builder.engines.base import Artifact, Rung
from enginewright_builder.load import encode, run_on_time
from enginewright_builder.sweep.bench import window
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.server import TritonServer

PROGRAM = "enginewright_builder"
# A build that has gone on for so many budgets will not end.
PATIENCE = 3
SERVED_SECONDS, WARMUP_SECONDS, READY_SECONDS = 4.0, 2.0, 300.0
SAMPLES = 16
EAGER, GRAPHS = "eager-fp32", "compile-fp16-graphs"
# What is served beside the published engine, by the name in the result.
SERVED_BASELINES = {"eager": "eager-fp32", "compile": "compile-fp16"}


@dataclass(frozen=True)
class Built:
    """The command that was run, how long it took in seconds, and what it published in ``store``."""

    command: Sequence[str]
    seconds: float
    budget_seconds: int
    store: Path
    published: Published


def build(entry: Entry, inputs: Path, scratch: Path, accelerator: str, budget_seconds: int | None) -> Built:
    """Runs ``enginewright-build`` as a person does: default precisions, and the default budget unless one is given.
    Raises ``RuntimeError`` with what it says of its end where it fails."""
    store = scratch / "store"
    source, options = _given(entry, inputs, scratch)
    command = [sys.executable, "-m", PROGRAM, "--model", str(source), "--output", str(store),
               "--name", MODEL, "--accelerator", accelerator, "--json", *options]
    if budget_seconds:
        command += ["--budget-seconds", str(budget_seconds)]
    budget = budget_seconds or BUDGET_SECONDS[accelerator]
    log, begin = scratch / "build.log", time.monotonic()
    with log.open("wb") as stream:
        done = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, timeout=PATIENCE * budget + 600,
                              check=False)
    if done.returncode:
        raise RuntimeError(f"{entry.name}: enginewright-build ended with status {done.returncode}: "
                           f"{_ending(log.read_text(errors='replace'))}")
    return Built(command, round(time.monotonic() - begin, 1), budget, store, Published.in_store(store))


def _ending(log: str) -> str:
    """The error, and what became of each trial that was begun; the end of the output where it has no outcome."""
    try:
        outcome = Outcome.from_json(log.rstrip().rpartition("\n")[2])
    except ContractError:
        return log[-500:]
    trials = "; ".join(f"{one.name} {one.verdict} ({one.build_seconds:.0f} s): {one.reason[:120]}"
                       for one in outcome.candidates if one.build_seconds is not None)
    error = outcome.error
    return "; ".join(filter(None, (f"{error.reason}: {error.message}" if error else "", trials)))


def _given(entry: Entry, inputs: Path, scratch: Path) -> tuple[Path, list[str]]:
    """The model as a user has it, the folder that was carried here or an exported program; and the options that say
    what its inputs are and where the samples lie that it is held against and calibrated with."""
    scratch.mkdir(parents=True, exist_ok=True)
    source = entry.load(inputs, "cpu")
    options = []
    for name, samples in (("evaluation", run.evaluation(entry, source)), ("calibration", run.calibration(source))):
        batches = list(samples.batches)
        np.savez(scratch / f"{name}.npz", **{key: np.concatenate([one[key] for one in batches]) for key in batches[0]})
        options += [f"--{name}", str(scratch / f"{name}.npz")]
    if (inputs / entry.name).is_dir():
        return inputs / entry.name, [*options, "--interface", dumps(Interface(inputs=source.interface.inputs))]
    path = scratch / f"{entry.name}.pt2"
    _save(source, path)
    return path, [*options, "--interface", dumps(source.interface)]


def _save(source: Any, path: Path) -> None:
    import torch

    program = source.torch_program("fp32")
    with torch.no_grad():
        exported = torch.export.export(program.module, program.args, dynamic_shapes=program.dynamic_shapes)
    torch.export.save(exported, path)


def row(built: Built, found: run.Found) -> dict[str, Any]:
    """What ``docs/benchmarks/product.json`` says of one model, but for what :func:`serve` adds; ratios are of times in
    one race."""
    measured = {one["batch"]: one["candidates"] for one in found.record["cells"]}

    def over(name: str) -> dict[int, float]:
        return {batch: round(times[name]["ms"] / times[run.AS_SHIPPED]["ms"], 3) for batch, times in measured.items()
                if name in times}

    return {"model": found.record["model"], "command": typed(built.command),
            "budget_s": built.budget_seconds, "build_s": built.seconds,
            "steps": dict(built.published.report.steps),
            "shipped": {batch: built.published.shipped(batch) for batch in measured},
            "regret": {batch: round(times[run.AS_SHIPPED]["ms"] / min(_sound(times)), 4)
                       for batch, times in measured.items()},
            "over_eager_fp32": over(EAGER), "over_compile_graphs": over(GRAPHS),
            "trials": built.published.trials(), "untried": built.published.untried()}


def typed(command: Sequence[str]) -> str:
    """The command as a person types it: files by their names, without the interface's JSON."""
    words = [Path(one).name if one.startswith("/") else "…" if one.startswith("{") else one for one in command[3:]]
    return " ".join(["enginewright-build", *words])


def _sound(times: dict[str, Any]) -> list[float]:
    """Milliseconds of all that is accurate, baselines too."""
    return [one["ms"] for one in times.values() if one["passes"]]


def serve(built: Built, subject: run.Subject, scratch: Path, gpus: tuple[int, ...]) -> dict[str, Any]:
    """``served``: one request in flight; ``knee``: as many as the sweep found best. Milliseconds that a gRPC client on
    loopback sees, requests of one sample each; ``bare_ms`` is the engine in this process, from host memory and back.
    What people serve answers each request by itself, as it comes."""
    swept, typical = built.published.report.sweep, subject.evaluation.typical
    concurrencies = (1, swept.best.concurrency if swept else 1)
    singles = [{name: array[index:index + 1] for name, array in typical.items()}
               for index in range(min(SAMPLES, len(next(iter(typical.values())))))]
    roots = {"": built.store / "models", **{f"{name}_": root for name, root in _baselines(subject, scratch, gpus)}}
    seen = {name: run_on_time(_loads(root, singles, concurrencies, gpus)) for name, root in roots.items()}
    points = [{f"{name}{key}": value for name in seen for key, value in seen[name][at].items()} for at in (0, 1)]
    with contextlib.closing(built.published.runner(1)) as runner:
        bare = {"bare_ms": median_ms(lambda: runner(singles[0]))}
    return {"served": {**points[0], **bare}, "knee": {"concurrency": concurrencies[1], **points[1]}}


async def _loads(root: Path, singles: Sequence[Tensors], concurrencies: Sequence[int],
                 gpus: tuple[int, ...]) -> list[dict[str, float]]:
    """``p50_ms`` and ``p99_ms`` at each concurrency. Raises ``ValueError`` where a request failed."""
    requests = [encode(MODEL, tensors, batch=1) for tensors in singles]
    found = []
    async with TritonServer(root, models=(MODEL,), gpus=gpus, ready_seconds=READY_SECONDS) as server:
        for concurrency in concurrencies:
            load = (await window(server, MODEL, requests, concurrency=concurrency, seconds=SERVED_SECONDS,
                                 warmup_seconds=WARMUP_SECONDS)).load
            if load.failed or not load.measured:
                raise ValueError(f"{root}: {load.failed} of {load.requests} requests failed: {dict(load.errors)}")
            found.append({"p50_ms": round(load.p50_ms, 4), "p99_ms": round(load.p99_ms, 4)})
    return found


def _baselines(subject: run.Subject, scratch: Path, gpus: tuple[int, ...]) -> Iterator[tuple[str, Path]]:
    artifact = Artifact(rung=Rung(backend="torch", precision="fp32"), files={}, triton_backend="python",
                        interface=subject.source.interface, runtime_version="")
    scratch.mkdir(parents=True)
    for label, name in SERVED_BASELINES.items():
        root = scratch / label
        baseline_way(artifact, saved(subject, name, 1, scratch / f"{label}.pt2"), name, 1, gpus)(root)
        yield label, root
