"""Graphs with a lower precision written into them, by NVIDIA's ModelOpt (``nvidia-modelopt``, its ONNX part)."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from enginewright_builder.engines.base import OutOfTimeError
from enginewright_builder.engines.beside import environment
from enginewright_builder.engines.trt_messages import candidate_failed
from enginewright_builder.errors import TransientError
from enginewright_builder.tensors import Tensors

AUTOCAST, QUANTIZE, LOWER = "autocast", "quantize", "lower"
_MODULES = ("modelopt", "onnx_graphsurgeon", "lief", "omegaconf", "polygraphy")
# Protobuf ends at 2 GiB; above this the weights go beside the graph.
LARGEST_BYTES = 1_800_000_000
_KILLED = -9
_QDQ = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the worker gets. ``data`` is a folder that :func:`save_batches` wrote; ``keep`` are nodes to leave.
    ``beside``: while others use the GPU, so the worker leaves it alone, and simplifies attention itself."""

    task: str
    source: str
    target: str
    precision: str
    data: str = ""
    keep: tuple[str, ...] = ()
    beside: bool = False


def missing() -> str:
    """Why ModelOpt cannot be used here, empty if it can."""
    absent = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    return f"this builder image lacks {', '.join(absent)}: use a builder image for GPUs" if absent else ""


def rewrite(job: Job, batches: Sequence[Tensors] = (), seconds: float = math.inf) -> None:
    """Runs ``job`` in a process of its own; ``batches`` are real inputs to measure activations with.

    Raises :class:`UserError` ``CandidateFailed``, also where nothing of the graph was quantised,
    :class:`TransientError` ``OutOfMemory``, and :class:`OutOfTimeError` where it takes longer than ``seconds``.
    """
    limit = None if math.isinf(seconds) else max(0.0, seconds)
    try:
        done = subprocess.run(command(job, batches), capture_output=True, text=True, check=False, env=environment(),
                              timeout=limit)
    except subprocess.TimeoutExpired as late:
        raise OutOfTimeError from late
    check_written(job, done.returncode, done.stderr)


def command(job: Job, batches: Sequence[Tensors]) -> list[str]:
    """The worker's words, after all that it reads was written beside the target."""
    folder = Path(job.target).parent
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "calibration"
    save_batches(data, batches)
    file = folder / f"{job.task}.json"
    file.write_text(json.dumps(dataclasses.asdict(dataclasses.replace(job, data=str(data)))))
    return [sys.executable, "-m", "enginewright_builder.engines.modelopt_worker", str(file)]


def check_written(job: Job, code: int, errors: str) -> None:
    """Once the worker ended with ``code``. Raises as :func:`rewrite` does."""
    if code == _KILLED:
        raise TransientError("OutOfMemory", f"the builder ran out of memory while it wrote {job.precision} into the "
                             "graph", remedy="give the build more memory, or fewer spec.engine.calibration.samples")
    if code:
        raise candidate_failed(job.precision, f"ModelOpt cannot write {job.precision} into the graph: "
                               f"{_last_line(errors)}", "write auto or fp16")
    if job.task == QUANTIZE and not has_qdq(Path(job.target)):
        raise candidate_failed(job.precision, "nothing in the graph is worth quantising: its products are too small "
                               "for the tensor cores, or are kept precise", "write auto or fp16")


def has_qdq(path: Path) -> bool:
    """Whether the graph is quantised already, as one trained with quantisation in mind is."""
    return any(node.op_type in _QDQ for node in onnx.load(str(path), load_external_data=False).graph.node)


def save_batches(folder: Path, batches: Sequence[Tensors]) -> None:
    """A file for each batch; names of inputs may hold what file names may not, so they lie in a list of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.npz"):
        stale.unlink()
    for index, batch in enumerate(batches):
        arrays = {f"array_{position}": array for position, array in enumerate(batch.values())}
        np.savez(folder / f"{index:06}.npz", names=np.array(list(batch), dtype=np.str_), **arrays)


def load_batches(folder: Path) -> list[dict[str, Any]]:
    batches = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            batches.append({str(name): file[f"array_{position}"] for position, name in enumerate(file["names"])})
    return batches


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it does not say why"
