"""What Triton costs: gRPC to a real tritonserver beside the bare engine in this process, one request at a time."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from enginewright_builder.contract import ServingChoice
from enginewright_builder.engines.base import Artifact, Engine
from enginewright_builder.load import encode, run_on_time
from enginewright_builder.sweep.bench import window
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.prove import Case, prove_on
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer

ROUNDS = 200
SECONDS, WARMUP_SECONDS = 3.0, 1.0
MODEL = "model"


def compare(name: str, artifact: Artifact, engine: Engine, inputs: Tensors, scratch: Path) -> dict[str, Any]:
    """``{"model", "batch", "candidate", "device_ms", "bare_ms", "triton_ms", "layers"}``: medians.

    Raises :class:`UserError` ``ServedAnswersDiffer`` where the server answers otherwise than the engine.
    ``device_ms`` has the inputs on the GPU; ``bare_ms`` takes them from host memory and brings the answers back, as
    Triton must; ``layers`` is where a request's time in Triton went, in milliseconds.
    """
    batch = len(next(iter(inputs.values())))
    shutil.rmtree(scratch, ignore_errors=True)
    write_model(scratch, MODEL, artifact, ServingChoice(max_batch_size=batch, preferred_batch_sizes=()), gpus=(0,),
                warmup=inputs)
    runner = engine.load(artifact)
    try:
        call = runner.bind(inputs)
        device, bare, expected = _median(call), _median(lambda: runner(inputs)), runner(inputs)
    finally:
        runner.close()
    # A server that sends empty answers is fast.
    run_on_time(_prove(scratch, Case(inputs=inputs, expected=expected)))
    served, layers = run_on_time(_served(scratch, inputs, batch))
    return {"model": name, "batch": batch, "candidate": artifact.rung.name, "device_ms": round(device, 4),
            "bare_ms": round(bare, 4), "triton_ms": round(served, 4), "layers": layers}


def _median(call: Any) -> float:
    for _ in range(20):
        call()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return float(np.median(times))


async def _prove(repository: Path, case: Case) -> None:
    async with TritonServer(repository, gpus=(0,)) as server:
        await prove_on(server, MODEL, [case])


async def _served(repository: Path, inputs: Tensors, batch: int) -> tuple[float, dict[str, float]]:
    async with TritonServer(repository, models=(MODEL,), gpus=(0,)) as server:
        seen = await window(server, MODEL, [encode(MODEL, inputs, batch=batch)], concurrency=1, seconds=SECONDS,
                            warmup_seconds=WARMUP_SECONDS)
    layers = {name: round(float(value), 4) for name, value in vars(seen.layers).items() if value is not None}
    return seen.load.p50_ms, layers
