"""A package of PyTorch under ``torch.profiler``.

On a GPU the profiler sees every kernel. On a CPU a package calls its kernels past the profiler, so there the same
program is compiled once more, with marks (``torch_compile``), and that one is run.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from enginewright_builder.engines.session_parameters import batches_of
from enginewright_builder.engines.torch_aoti import DEVICE
from enginewright_builder.measure.profile import WARMUPS, Event, Profiled, Run, Timed, repeat
from enginewright_builder.system import available_cpus
from enginewright_builder.tensors import Tensors

RUN = "enginewright run"
MARKED = ("PyTorch compiled this engine once more, with marks for its profiler, which sees no kernels of a CPU "
          "without them: what is served has no marks.")
_ON_GPU = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "set"}
_CPU_OPERATOR, _SHIM, _FUSED = "cpu_op", "aoti_torch_", "cpp_fused"


def profile(files: Mapping[str, Path], parameters: Mapping[str, str], inputs: Tensors) -> Profiled:
    """Raises what PyTorch does."""
    import torch

    from enginewright_builder.pod.python_model.aoti_session import Session

    device = int(parameters[DEVICE])
    session = Session(next(iter(files.values())).parent, list(files), device=device, buckets=batches_of(parameters),
                      ahead=False, parameters={"threads": str(available_cpus())})
    call, on_gpu = session.bind(inputs), device >= 0
    repeat(call, least=WARMUPS, most=WARMUPS)
    kinds = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] if on_gpu else [])]

    def marked() -> None:
        with torch.profiler.record_function(RUN):
            call()

    with torch.profiler.profile(activities=kinds, record_shapes=True) as recorded:
        repeat(marked)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        # No more of it: the rest names the machine.
        events = json.loads(path.read_text())["traceEvents"]
    session.close()
    return Profiled(runs=list(torch_runs(events, on_gpu=on_gpu)), events=events, notes=() if on_gpu else (MARKED,))


def torch_runs(events: Sequence[Event], *, on_gpu: bool) -> Iterator[Run]:
    """Each marked run with the kernels of the GPU in it, or with the operators of the CPU that no other called."""
    timed = sorted((one for one in events if one.get("ph") == "X" and "dur" in one), key=_by_begin)
    layers = [one for one in timed if one.get("cat") in _ON_GPU] if on_gpu else _outermost(timed)
    for run in (one for one in timed if one["name"] == RUN and one.get("cat") == "user_annotation"):
        end = run["ts"] + run["dur"]
        yield Run(begin=float(run["ts"]), microseconds=float(run["dur"]), layers=[
            Timed(name=_name(one), operator=_operator(one), microseconds=float(one["dur"])) for one in layers
            if run["ts"] <= one["ts"] < end])


def _by_begin(event: Event) -> tuple[float, float]:
    """Of those that begin together, who calls the other first."""
    return float(event["ts"]), -float(event["dur"])


def _outermost(timed: Sequence[Event]) -> list[Event]:
    ends: dict[Any, float] = {}
    found = []
    for one in timed:
        if one.get("cat") == _CPU_OPERATOR and one["ts"] >= ends.get(one.get("tid"), float("-inf")):
            ends[one.get("tid")] = one["ts"] + one["dur"]
            found.append(one)
    return found


def _name(event: Event) -> str:
    """With the sizes of its inputs where the trace has them: operators have no names of their own."""
    sizes = ["×".join(map(str, one)) for one in event.get("args", {}).get("Input Dims", ()) if one]
    return f"{event['name']} ({', '.join(sizes)})" if sizes else str(event["name"])


def _operator(event: Event) -> str:
    name, kind = str(event["name"]), str(event.get("cat"))
    if kind in _ON_GPU:
        return _ON_GPU[kind]
    if _FUSED in name:
        return "fused"
    return name.removeprefix(_SHIM).removeprefix("cpu_").rpartition("::")[2]
