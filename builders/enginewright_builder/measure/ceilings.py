"""What this device can do at most, measured in a second or two: a large copy, and a large matrix product by type.

The best of several runs counts: a ceiling is what is possible, and noise only ever takes from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from enginewright_builder.measure.roofline import Ceilings
from enginewright_builder.tensors import Call

# Each measurement's share of the time, after one call that warms up.
SECONDS = 0.25
_LEAST_CALLS = 3
# Sides of square matrices, and elements copied: past every cache, within a small MIG slice's memory.
CPU_SIDE, GPU_SIDE = 1536, 8192
CPU_COPY_BYTES, GPU_COPY_BYTES = 256 << 20, 1 << 30


def measure_ceilings(accelerator: str, kinds: Collection[str]) -> Ceilings:
    """``kinds`` are types of :data:`enginewright_builder.measure.roofline.ELEMENT_BYTES`. One that this device or
    PyTorch cannot multiply is left out: nothing is assumed of it."""
    device = _Gpu() if accelerator == "gpu" else _Cpu()
    peaks = {kind: rate for kind in sorted(kinds) if (rate := _flops_per_second(device, kind))}
    seconds = device.best(device.copy())
    return Ceilings(bytes_per_second=2 * device.copy_bytes / seconds, flops_per_second=peaks)


def _flops_per_second(device: _Cpu | _Gpu, kind: str) -> float:
    import torch

    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
    try:
        return 2.0 * device.side ** 3 / device.best(device.product(kind))
    except (RuntimeError, NotImplementedError, ValueError, AttributeError, KeyError):
        return 0.0
    finally:
        torch.set_float32_matmul_precision(previous)


class _Cpu:
    """FP32 and 16-bit products by PyTorch, INT8 by ONNX Runtime, which is what runs quantised candidates here."""

    side, copy_bytes = CPU_SIDE, CPU_COPY_BYTES

    def copy(self) -> Call:
        import torch

        source = torch.ones(self.copy_bytes // 4)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    def product(self, kind: str) -> Call:
        import torch

        if kind == "int8":
            return _int8_on_cpu(self.side)
        dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[kind]
        left, right = (torch.randn(self.side, self.side).to(dtype) for _ in range(2))
        out = torch.empty_like(left)
        return lambda: torch.mm(left, right, out=out)

    def best(self, call: Call) -> float:
        return _best(call, time.perf_counter)


class _Gpu:
    """Products of the type in the tensor cores where they have it."""

    side, copy_bytes = GPU_SIDE, GPU_COPY_BYTES

    def copy(self) -> Call:
        import torch

        source = torch.ones(self.copy_bytes, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    def product(self, kind: str) -> Call:
        import torch

        # Random values: constant ones switch fewer bits, and the chip clocks higher than it ever would with a model.
        def random(dtype: torch.dtype) -> torch.Tensor:
            return torch.randn(self.side, self.side, device="cuda").to(dtype)

        if kind == "int8":
            left, right = random(torch.int8), random(torch.int8).t()
            return lambda: torch._int_mm(left, right)
        if kind == "fp8":
            left, right = random(torch.float8_e4m3fn), random(torch.float8_e4m3fn).t()
            scale = torch.ones((), device="cuda")
            return lambda: torch._scaled_mm(left, right, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
        dtype = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[kind]
        left, right = random(dtype), random(dtype)
        out = torch.empty_like(left)
        return lambda: torch.mm(left, right, out=out)

    def best(self, call: Call) -> float:
        import torch

        def clock() -> float:
            torch.cuda.synchronize()
            return time.perf_counter()

        return _best(call, clock)


def _best(call: Call, clock: Callable[[], float]) -> float:
    """Seconds of the fastest call."""
    call()
    times: list[float] = []
    begin = clock()
    while len(times) < _LEAST_CALLS or clock() - begin < SECONDS:
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def _int8_on_cpu(side: int) -> Call:
    """``MatMulInteger`` of unsigned activations and signed weights, as quantised models have it."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    from enginewright_builder.ort_session import ort
    from enginewright_builder.system import available_cpus

    weights = numpy_helper.from_array(np.ones((side, side), np.int8), "weights")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "weights"], ["y"])], "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [side, side])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [side, side])], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = available_cpus()
    session: Any = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = {"x": np.ones((side, side), np.uint8)}
    return lambda: session.run(None, inputs)
