"""``python -m enginewright_builder.engines.profile_worker JOB``: one engine under its library's profiler, in a process
of its own. A profiler that crashes or hangs takes no build with it, and what it has switched on in a library ends with
it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from enginewright_builder.contract import dumps, load
from enginewright_builder.measure.profile import Profiled, summed
from enginewright_builder.system import end_with_parent
from enginewright_builder.tensors import Tensors

FOUND, TRACE = "profile.json", "trace.json.gz"


@dataclass(frozen=True, kw_only=True)
class Job:
    """An artifact's ``files`` and ``parameters``; ``inputs`` is a file of :func:`keep_inputs`, one batch of what the
    engine itself takes. What is found goes into ``folder``; ``trace`` is what the trace will be called."""

    name: str
    library: str
    batch: int
    files: Mapping[str, str]
    inputs: str
    folder: str
    trace: str
    parameters: Mapping[str, str] = field(default_factory=dict)


def keep_inputs(path: Path, inputs: Tensors) -> None:
    """Texts lie in NumPy's own strings, since an array of objects would be pickled."""
    kept = {name: array.astype(np.str_) if array.dtype.kind == "O" else array for name, array in inputs.items()}
    with path.open("wb") as file:
        np.savez(file, **kept)


def kept_inputs(path: Path) -> Tensors:
    with np.load(path, allow_pickle=False) as kept:
        return {name: kept[name].astype(np.object_) if kept[name].dtype.kind == "U" else kept[name] for name in kept}


def profiler(library: str) -> Callable[[Mapping[str, Path], Mapping[str, str], Tensors], Profiled]:
    """Imported where it is needed: each takes a library of its own."""
    if library == "onnxruntime":
        from enginewright_builder.engines import profile_ort

        return profile_ort.profile
    if library == "torch":
        from enginewright_builder.engines import profile_torch

        return profile_torch.profile
    if library == "tensorrt":
        from enginewright_builder.engines import profile_trt

        return profile_trt.profile
    raise ValueError(f"there is no profiler for engines of {library}")


def main(arguments: Sequence[str]) -> None:
    end_with_parent()
    job = load(Job, Path(arguments[0]).read_text(encoding="utf-8"))
    files = {name: Path(path) for name, path in job.files.items()}
    profiled = profiler(job.library)(files, job.parameters, kept_inputs(Path(job.inputs)))
    found, trace = summed(profiled, name=job.name, library=job.library, batch=job.batch, trace=job.trace)
    folder = Path(job.folder)
    if trace:
        (folder / TRACE).write_bytes(trace)
    (folder / FOUND).write_text(dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
