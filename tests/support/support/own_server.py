"""What a build does on a tritonserver, on one that is started for it: a proof, a sweep, the model served plainly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from enginewright_builder.engines.base import Artifact
from enginewright_builder.evidence.before import serve_plainly_on
from enginewright_builder.load import run_on_time
from enginewright_builder.sweep import SweepResult, Task, sweep_on
from enginewright_builder.sweep.result import Point
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.prove import Case, Proof, prove_on
from enginewright_builder.triton.server import TritonServer


def prove(repository: Path, model_name: str, cases: Sequence[Case], *, gpus: tuple[int, ...] = (),
          repeated: Sequence[Tensors] = ()) -> Proof:
    """Raises as :func:`prove_on` does."""
    async def fresh() -> Proof:
        async with TritonServer(repository, gpus=gpus) as server:
            return await prove_on(server, model_name, cases, repeated=repeated)

    return asyncio.run(fresh())


def sweep(task: Task, root: Path) -> SweepResult:
    """``root`` is the server's repository. Raises as :func:`sweep_on` does."""
    async def fresh() -> SweepResult:
        async with TritonServer(root, gpus=task.gpus) as server:
            return await sweep_on(server, root, task)

    return run_on_time(fresh())


def serve_plainly(artifact: Artifact, model_name: str, inputs: Sequence[Tensors], root: Path, **settings: Any) -> Point:
    """``root`` is the server's repository; ``settings`` are those of :func:`serve_plainly_on`."""
    async def fresh() -> Point:
        async with TritonServer(root) as server:
            return await serve_plainly_on(server, root, artifact, model_name, inputs, **settings)

    return run_on_time(fresh())
