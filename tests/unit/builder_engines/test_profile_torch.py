"""What is read out of a trace of PyTorch's profiler, of events as it writes them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from enginewright_builder.engines.profile_torch import RUN, torch_runs
from enginewright_builder.measure.profile import Event

pytestmark = pytest.mark.torch


def event(name: str, kind: str, begin: float, took: float, *, thread: int = 1, sizes: Sequence[Sequence[int]] = ()
          ) -> Event:
    return {"ph": "X", "cat": kind, "name": name, "ts": begin, "dur": took, "tid": thread,
            "args": {"Input Dims": sizes} if sizes else {}}


def test_on_a_cpu_an_operator_that_another_calls_is_part_of_it() -> None:
    events = [
        {"ph": "M", "name": "process_name", "ts": 0.0},
        event(RUN, "user_annotation", 100, 100),
        event("AOTIModelContainerRunner::run", "user_annotation", 101, 98),
        event("aoti_torch_cpu_addmm_out", "cpu_op", 102, 50, sizes=[[256], [4, 64], [], [64, 256]]),
        event("aten::expand", "cpu_op", 102, 5), event("aten::copy_", "cpu_op", 110, 5),
        event("graph_0_cpp_fused_gelu_0", "cpu_op", 152, 20),
        event("aten::sum", "cpu_op", 160, 5, thread=2),
        event("aten::add", "cpu_op", 300, 5), event(RUN, "user_annotation", 400, 10)]
    first, second = torch_runs(events, on_gpu=False)
    assert [(one.name, one.operator, one.microseconds) for one in first.layers] == [
        ("aoti_torch_cpu_addmm_out (256, 4×64, 64×256)", "addmm_out", 50), ("graph_0_cpp_fused_gelu_0", "fused", 20),
        ("aten::sum", "sum", 5)]
    assert (first.begin, first.microseconds, second.layers) == (100, 100, [])


def test_on_a_gpu_kernels_and_copies_of_the_run_count() -> None:
    events = [event(RUN, "user_annotation", 0, 100), event("aten::addmm", "cpu_op", 1, 5),
              event("sm90_xmma_gemm", "kernel", 10, 60, thread=7), event("Memcpy HtoD", "gpu_memcpy", 5, 2, thread=7),
              event("Memset", "gpu_memset", 8, 1, thread=7), event("late", "kernel", 100, 60, thread=7)]
    found, = torch_runs(events, on_gpu=True)
    assert [(one.name, one.operator) for one in found.layers] == [
        ("Memcpy HtoD", "copy"), ("Memset", "set"), ("sm90_xmma_gemm", "kernel")]
