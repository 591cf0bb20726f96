"""What people run without Enginewright: eager PyTorch, and torch.compile with CUDA graphs. Measured, never shipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from enginewright_builder.models import SourceModel
from enginewright_builder.tensors import Call, Tensors

NAMES = ("eager-fp32", "eager-fp16", "compile-fp16-graphs")


class Baseline:
    """A PyTorch source in one precision, eager or compiled with CUDA graphs, on inputs that lie on the GPU."""

    def __init__(self, source: SourceModel, name: str) -> None:
        precision = "fp16" if "fp16" in name else "fp32"
        program = source.torch_program(precision)
        if program is None:
            raise ValueError(f"{source.name} is no PyTorch module")
        self.source, self.name = source, name
        self.dtype = torch.float16 if precision == "fp16" else torch.float32
        self.module: Any = torch.compile(program.module, dynamic=False) if "compile" in name else program.module

    def bind(self, inputs: Tensors) -> Call:
        arguments = self._arguments(inputs)
        if self.name.endswith("-graphs"):
            return captured(self.module, arguments)

        def call() -> None:
            with torch.inference_mode():
                self.module(*arguments)
                torch.cuda.synchronize()

        return call

    def __call__(self, inputs: Tensors) -> Tensors:
        with torch.inference_mode():
            tensors = self.module(*self._arguments(inputs))
        return {spec.name: tensor.float().cpu().numpy()
                for spec, tensor in zip(self.source.interface.outputs, tensors, strict=True)}

    def _arguments(self, inputs: Tensors) -> list[torch.Tensor]:
        return [self._tensor(inputs[spec.name]) for spec in self.source.interface.inputs]

    def _tensor(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array)).cuda()
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor


def captured(module: Any, arguments: list[torch.Tensor]) -> Call:
    """``module`` as one CUDA graph, captured by hand: replayed without the copies and checks that torch.compile's own
    mode (``reduce-overhead``) adds to each call, so the stronger baseline."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.inference_mode(), torch.cuda.stream(stream):
        for _ in range(3):
            module(*arguments)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            outputs = module(*arguments)

    def call(held: Any = (arguments, outputs)) -> None:
        with torch.cuda.stream(stream):
            graph.replay()
            stream.synchronize()

    return call
