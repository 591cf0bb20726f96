"""Ways to serve one model on this GPU, side by side in one run: which backend runs it in Triton, and how requests get
there. ``python -m bench.ways`` writes one JSON file; docs/benchmarks/README.md explains it.

Backends: TensorRT's FP16 engine in Triton's Python backend (what an image without NVIDIA's backends has) and in
NVIDIA's own TensorRT backend (where this tritonserver has it, or ``--backends`` names a folder with it), and the same
model as people serve it without Enginewright, eager PyTorch and torch.compile in the Python backend. Transports:
tensors inside gRPC messages, in system shared memory, and in CUDA shared memory; the last two need a client on the
server's node.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import run
from bench.machine import hardware, versions
from bench.transports import PARTS, TRANSPORTS, Client
from bench.zoo import Entry, entries
from enginewright_builder.contract import DeviceRequest, ServingChoice
from enginewright_builder.engines.base import Artifact, BatchRange, Rung, Runner
from enginewright_builder.engines.registry import all_engines
from enginewright_builder.engines.session_parameters import GRAPH_BATCHES, PROFILES
from enginewright_builder.engines.trt_profiles import fixed_sizes
from enginewright_builder.load import run_on_time
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.install import BACKENDS_VARIABLE
from enginewright_builder.triton.model_config import model_config, to_text
from enginewright_builder.triton.repository import CONFIG_FILE, served_model, write_model
from enginewright_builder.triton.server import TritonServer

log = logging.getLogger("ways")
MODEL = "model"
BATCHES = (1, 32)
SECONDS, WARMUP_SECONDS = 3.0, 1.5
# Of cosine between what a way answers and what the source model answers: a server that sends nonsense is fast.
LEAST_COSINE = 0.98
BACKENDS = ("python", "tensorrt")
BASELINES = ("eager-fp32", "eager-fp16", "compile-fp16")
WAYS = (*BACKENDS, *BASELINES)
READY_SECONDS = 300.0
# As Client.spent gives it.
Spent = tuple[int, Mapping[str, int]]


def main() -> int:
    given = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    if given.backends:
        os.environ[BACKENDS_VARIABLE] = str(given.backends)
    named = {"MODELS": given.models, "WAYS": given.ways, "BACKENDS": "DIR" if given.backends else ""}
    command = shlex.join(["make", "bench-ways", *(f"{key}={value}" for key, value in named.items() if value)])
    result: dict[str, Any] = {"hardware": hardware(), "versions": versions(), "command": command, "rows": [],
                              "failed": []}
    for entry in entries(given.models):
        with tempfile.TemporaryDirectory(prefix=f"ways-{entry.name}-") as scratch:
            for row in _rows(entry, given.inputs, Path(scratch), result["hardware"]["gpu"], given.ways.split(",")):
                log.info("%s", row)
                result["failed" if "error" in row else "rows"].append(row)
                given.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _rows(entry: Entry, inputs: Path, scratch: Path, gpu: str, wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    device = DeviceRequest(accelerator="gpu", products=(gpu.replace(" ", "-"),), gpu_count=1)
    subject = run.prepare(dataclasses.replace(entry, samples=64), inputs, scratch / "source", "cuda")
    for batch in BATCHES:
        programs = {name: saved(subject, name, batch, scratch / f"{name}-{batch}.pt2") for name in BASELINES
                    if name in wanted}
        request = subject.evaluation.request(batch)
        expected = subject.source.run(request)
        artifact, runner = _engine(subject, batch, scratch, device)
        bare = {"device_ms": median_ms(runner.bind(request)), "host_ms": median_ms(lambda: runner(request))}  # noqa: B023
        runner.close()
        ways: dict[str, Callable[[Path], None]] = {
            backend: _engine_way(artifact, backend, batch, request) for backend in BACKENDS if backend in wanted
        } | {name: baseline_way(artifact, path, name, batch) for name, path in programs.items()}
        for way, write in ways.items():
            about = {"model": entry.name, "batch": batch, "way": way, **bare}
            try:
                for row in _measured(write, scratch / "served", request, expected):
                    yield {**about, **row, "over_bare": round(row["p50_ms"] / bare["host_ms"], 3)}
            except Exception as error:
                yield {**about, "error": f"{type(error).__name__}: {error}"[-1500:]}


def _engine(subject: run.Subject, batch: int, scratch: Path, device: DeviceRequest) -> tuple[Artifact, Runner]:
    """TensorRT's FP16 engine, tuned for this batch. It takes smaller ones as well: NVIDIA's backend fills none up."""
    engine = next(one for one in all_engines() if one.name == "tensorrt")
    context = dataclasses.replace(run.context_of(subject, scratch / f"engine-{batch}", scratch / "timings", device),
                                  buckets=(batch,), max_batch_size=batch)
    wide = next(one for one in engine.rungs("fp16", context) if not one.unavailable)
    rung = Rung(backend=wide.backend, precision=wide.precision, ranges=(BatchRange(low=1, best=batch, high=batch),))
    artifact = engine.build(rung, subject.exported, context)
    return artifact, engine.load(artifact)


def _engine_way(artifact: Artifact, backend: str, batch: int, warmup: Tensors) -> Callable[[Path], None]:
    parameters: Mapping[str, str] = artifact.parameters
    if backend == "tensorrt":
        # NVIDIA's backend captures graphs of fixed shapes alone.
        graphs = {GRAPH_BATCHES: str(batch)} if fixed_sizes(artifact.interface) else {}
        # The first is of this batch exactly, the second of all up to it, as the warm-up's single sample wants.
        parameters = {PROFILES: "0" if batch == 1 else "0,1", **graphs}
    there = dataclasses.replace(artifact, triton_backend=backend, parameters=parameters)
    choice = ServingChoice(max_batch_size=batch, preferred_batch_sizes=())

    def write(root: Path) -> None:
        write_model(root, MODEL, there, choice, gpus=(0,), warmup=warmup)

    return write


def baseline_way(artifact: Artifact, program: Path, name: str, batch: int,
                 gpus: tuple[int, ...] = (0,)) -> Callable[[Path], None]:
    """What writes the repository of a PyTorch baseline with the interface of ``artifact``."""
    def write(root: Path) -> None:
        choice = ServingChoice(max_batch_size=batch, preferred_batch_sizes=())
        python = dataclasses.replace(artifact, triton_backend="python", python_runtime="torch", parameters={})
        config = model_config(served_model("", python, choice, gpus=gpus))
        config.parameters["compile"].string_value = str("compile" in name)
        version = root / MODEL / "1"
        version.mkdir(parents=True)
        shutil.copyfile(program, version / "program.pt2")
        shutil.copyfile(Path(__file__).with_name("torch_model.py"), version / "model.py")
        (root / MODEL / CONFIG_FILE).write_text(to_text(config))

    return write


def saved(subject: run.Subject, name: str, batch: int, path: Path) -> Path:
    """An exported program, which needs PyTorch alone where it is served, for this batch alone. Its graph runs operator
    by operator, as an eager module does, with less of Python between them: a strong baseline."""
    import torch

    program = subject.source.torch_program(name.rpartition("-")[2], batch)
    if program is None:
        raise ValueError(f"{subject.source.name} is no PyTorch module")
    with torch.no_grad():
        exported = torch.export.export(program.module, program.args, dynamic_shapes=program.dynamic_shapes)
    torch.export.save(exported, path)
    return path


def _measured(write: Callable[[Path], None], root: Path, request: Tensors,
              expected: Tensors) -> Iterator[dict[str, Any]]:
    shutil.rmtree(root, ignore_errors=True)
    write(root)

    async def served() -> list[dict[str, Any]]:
        async with TritonServer(root, models=(MODEL,), gpus=(0,), ready_seconds=READY_SECONDS) as server:
            return [{"transport": name, **timed(server.grpc_url, name, request, expected)} for name in TRANSPORTS]

    yield from run_on_time(served())


def timed(url: str, transport: str, request: Tensors, expected: Tensors) -> dict[str, Any]:
    """One request at a time for :data:`SECONDS`: ``p50_ms``, ``p99_ms``, and the cosine of the answer."""
    with contextlib.closing(Client(url, MODEL, transport, request, expected)) as client:
        begin = time.perf_counter()
        while time.perf_counter() - begin < WARMUP_SECONDS:
            client.ask()
        cosine = min(_cosine(client.answer(name), expected[name]) for name in expected)
        if cosine < LEAST_COSINE:
            raise ValueError(f"by {transport} the answers' cosine with the source's is {cosine:.4f}")
        so_far = client.spent()
        times, begin = [], time.perf_counter()
        while (before := time.perf_counter()) - begin < SECONDS:
            client.ask()
            times.append((time.perf_counter() - before) * 1e3)
        layers = where_it_went(so_far, client.spent(), times)
    return {"p50_ms": round(float(np.median(times)), 4), "p99_ms": round(float(np.percentile(times, 99)), 4),
            "requests": len(times), "cosine": round(cosine, 6), "layers_ms": layers}


def where_it_went(before: Spent, after: Spent, times: Sequence[float]) -> dict[str, float]:
    """Mean milliseconds of a request in each part of the server, ``server`` in all of it, and ``outside``: the client,
    gRPC and the way between them."""
    count = after[0] - before[0]
    mean = {name: (after[1][name] - before[1][name]) / count / 1e6 for name in PARTS}
    server = mean.pop(PARTS[0])
    return {name: round(value, 4) for name, value in
            {**mean, "server": server, "outside": float(np.mean(times)) - server}.items()}


def _cosine(one: Any, other: Any) -> float:
    left, right = (np.asarray(array, np.float64).ravel() for array in (one, other))
    return float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right)))


def median_ms(call: Callable[[], object], rounds: int = 200) -> float:
    for _ in range(20):
        call()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return round(float(np.median(times)), 4)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.ways", description=__doc__)
    parser.add_argument("--inputs", type=Path, default=Path("/tmp/bench-inputs/models"),  # noqa: S108 - unpack.sh's
                        help="folder of model weights that were carried in")
    parser.add_argument("--models", default="resnet50,minilm", help="names separated by commas")
    parser.add_argument("--backends", type=Path,
                        help="folder of further Triton backends, such as one with tensorrt/libtriton_tensorrt.so")
    parser.add_argument("--ways", default=",".join(WAYS), help="names separated by commas")
    parser.add_argument("--output", type=Path, required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())
