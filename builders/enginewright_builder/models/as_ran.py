"""PyTorch models whose forward pass branches on what tensors hold: ``torch.export`` cannot tell which way such branches
go. Here one real call decides, and the operators that it ran are the graph.

Other calls may go another way, so answers to data that the call has not seen are held against the model's own before
anything is built, and those to all evaluation data by the gate."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.models.base import TorchProgram, not_in
from enginewright_builder.models.synthetic import half_filled
from enginewright_builder.models.torch_base import TorchModel, export_failed, quiet, write_onnx
from enginewright_builder.models.wrapped import Wrapped
from enginewright_builder.session_runner import call_by_call
from enginewright_builder.shapes import size_range
from enginewright_builder.tensors import Array, Call, Tensors, whole_call


class AsRan(Wrapped):
    """``inner``, whose inputs have one size each behind the batch, for calls of one sample. ``why`` is what stands in
    the way of batches, in words."""

    def __init__(self, inner: TorchModel, why: str) -> None:
        super().__init__(inner)
        self.interface = Interface(inputs=tuple(map(_single, inner.interface.inputs)),
                                   outputs=tuple(map(_single, inner.interface.outputs)))
        self._program, self._note = inner.torch_program, (
            f"the model is exported as one call of it ran, with a batch of 1: {why}. So each request is one call with "
            "one sample, and the server joins no requests. Exported without such branches it could join up to "
            "spec.engine.maxBatchSize samples")

    @property
    def notes(self) -> tuple[str, ...]:
        return (self._note, *self._inner.notes)

    @property
    def tokenize(self) -> Any:
        inner = self._inner.tokenize
        return inner and (lambda texts: {name: array[:, None] for name, array in inner(texts).items()})

    def run(self, inputs: Tensors) -> dict[str, Array]:
        return call_by_call(self._inner.run, inputs)

    def bind(self, inputs: Tensors) -> Call:
        return self._inner.bind(whole_call(inputs))

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        if precision != "fp32":
            raise not_in(precision, "a model that is exported as one call of it ran")
        program = self._program(precision, 1)
        assert program is not None  # PyTorch's own sources have one
        # Where nothing is filled up some models leave the mask out of what they compute.
        example = tuple(half_filled(spec.name, value)
                        for spec, value in zip(self.interface.inputs, program.args, strict=True))
        try:
            write_onnx(_ran(dataclasses.replace(program, args=example)), self.interface, path, opset)
        except UserError:
            raise
        except Exception as error:  # of the model, of the trace, or of the exporter
            raise export_failed(error) from error

    def torch_program(self, precision: str, batch: int = 0) -> None:
        return None


def _ran(program: TorchProgram) -> TorchProgram:
    """The operators that one call runs, on tensors that are real, so that what it reads of them is known. Attention in
    products, since the kernels of one device are no operators elsewhere."""
    with quiet(), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        graph = make_fx(program.module, tracing_mode="real", _allow_non_fake_inputs=True,
                        _error_on_data_dependent_ops=False)(*program.args)
    if drawn := [str(node.target) for node in graph.graph.nodes
                 if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())]:
        raise UserError("UnsupportedModel", f"the model draws random numbers in each call ({drawn[0]}), which no "
                        "engine draws alike", field="spec.source.uri", value=drawn[0],
                        remedy="list the input that takes them in spec.interface.inputs, where its forward has one, or "
                               "export the model without them")
    fixed: dict[str, Any] = {node.target: {} for node in graph.graph.nodes if node.op == "placeholder"}
    return dataclasses.replace(program, module=graph, dynamic_shapes=fixed)


def _single(spec: TensorSpec) -> TensorSpec:
    return dataclasses.replace(spec, shape=(1, *spec.shape[1:]))


def of_one_size(interface: Interface) -> bool:
    return all(low == high for spec in interface.inputs for low, high in map(size_range, spec.shape[1:]))
