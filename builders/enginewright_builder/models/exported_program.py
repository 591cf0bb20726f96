"""``.pt2``: programs saved by ``torch.export.save``. ``sources/exported_program.py`` has looked through the file
before."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export.passes import move_to_device_pass
from torch.utils import _pytree as pytree

from enginewright_builder.constants import constant_notes, constants_of, without_constants
from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError, brief, known_or, last_line
from enginewright_builder.models.base import SourceModel
from enginewright_builder.models.onnx import OnnxModel
from enginewright_builder.models.onnx_translations import translations
from enginewright_builder.models.synthetic import DEFAULT_VOCABULARY, example_inputs
from enginewright_builder.models.torch_arguments import Called, by_position
from enginewright_builder.models.torch_base import NoBatchError, TorchModel, observed_outputs, quiet, with_free_sizes
from enginewright_builder.models.torch_precision import flat_names
from enginewright_builder.models.torch_records import check_as_torch_reads
from enginewright_builder.models.torch_whole import through_onnx
from enginewright_builder.onnx_interface import freed_interface
from enginewright_builder.shapes import DTYPES, UNBOUNDED, checked, shape_text
from enginewright_builder.sources.exported_program import check_exported_program, check_program
from enginewright_builder.tensors import Array

_FIELD = "spec.source.uri"
# Of programs that go on as ONNX.
OPSET = 18


def load_exported_program(path: Path, interface: Interface | None, device: str = "cpu",
                          workspace: Path | None = None) -> SourceModel:
    """``workspace`` is where a program without a free batch in front is exported to. Raises :class:`UserError`
    ``SourceCorrupt``, ``PickleRefused``, ``UnsupportedModel``, ``ExportFailed`` or ``InterfaceInvalid``."""
    check_exported_program(path)
    check_as_torch_reads(path, check_program)
    program = _load(path)
    # Guards are code: the graph answers without them.
    program._guards_code = []
    inputs = _inputs(program)
    if interface is not None and without_constants(interface).inputs:
        inputs = _renamed(inputs, checked(interface, shapes_known=True))
    values = constants_of(Interface(inputs=inputs), interface)
    module = _called(program, inputs, values)
    names = _output_names(program, interface, [spec.name for spec in inputs])
    sent = tuple(spec for spec in inputs if spec.name not in values)
    batched = freed_interface(Interface(inputs=sent)).inputs
    try:
        if not all(spec.shape and isinstance(spec.shape[0], str) for spec in sent):
            return _whole(path, program, inputs, names, workspace, device, values, stated=interface is not None)
        with quiet(), torch.inference_mode():
            seen = [observed_outputs(_call(module, Interface(inputs=batched), size), names, 2) for size in (5, 7)]
    except NoBatchError:
        return _whole(path, program, inputs, names, workspace, device, values, stated=interface is not None)
    if device != "cpu":
        # The graph itself says where its new tensors are made: by the GPU's number, as tensors do. To the exporter
        # ``cuda`` is another device than ``cuda:0``.
        module = _called(move_to_device_pass(program, f"{device}:0"), inputs, values)
    loaded = TorchModel(module, Interface(inputs=batched, outputs=with_free_sizes(*seen)), name="PyTorch program, FP32",
                        vocabulary=_vocabulary(program), device=device)
    loaded.notes = constant_notes(values)
    return loaded


def _called(program: torch.export.ExportedProgram, inputs: Sequence[TensorSpec], values: Mapping[str, Array]
            ) -> torch.nn.Module:
    """With one tensor for each input that clients send, by position."""
    module, structure = program.module(check_guards=False), program.call_spec.in_spec
    if not values and (structure is None or by_position(structure, len(inputs))):
        return module
    return Called(module, [spec.name for spec in inputs], values, structure=structure)


def _whole(path: Path, program: torch.export.ExportedProgram, inputs: tuple[TensorSpec, ...], names: list[str],
           workspace: Path | None, device: str, values: Mapping[str, Array], *, stated: bool) -> OnnxModel:
    def export(example: tuple[torch.Tensor, ...], graph: Path, into: list[str], out: list[str]) -> object:
        # The program itself, which has its own free sizes.
        return torch.onnx.export(program, (), str(graph), input_names=into, output_names=out, opset_version=OPSET,
                                 dynamo=True, external_data=False, optimize=True, report=False, verify=False,
                                 custom_translation_table=translations())

    module = _called(program, inputs, {})

    def run(*tensors: torch.Tensor) -> Any:
        return _answer(module, inputs, tensors)

    return through_onnx(path, "PyTorch program", inputs, names, run, export, workspace or path.parent, device, values,
                        stated=stated)


def _load(path: Path) -> torch.export.ExportedProgram:
    before = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    try:
        with quiet():
            return torch.export.load(str(path))
    except Exception as error:  # the reader fails in many classes of its own
        raise known_or(error, UserError(
            "SourceCorrupt", f"{path.name} cannot be loaded: {brief(error)}", field=_FIELD, value=path,
            remedy=f"save it with the builder's PyTorch release or an older one ({torch.__version__})")) from error
    finally:
        if before is None:
            del os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"]
        else:
            os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = before


def _inputs(program: torch.export.ExportedProgram) -> tuple[TensorSpec, ...]:
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    ranges = {str(symbol): bounds for symbol, bounds in program.range_constraints.items()}
    specs: list[TensorSpec] = []
    for name in program.graph_signature.user_inputs:
        value = nodes[str(name)].meta.get("val") if str(name) in nodes else None
        if not isinstance(value, torch.Tensor):
            raise UserError("UnsupportedModel", f"input {name!r} is no tensor", field=_FIELD, value=name,
                            remedy="export the program with tensors only, numbers as tensors without a dimension")
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise UserError("InterfaceInvalid", f"input {name!r} is of type {dtype}, which clients and server do not "
                            "exchange", field=_FIELD, value=f"{name}: {dtype}",
                            remedy=f"cast in the forward pass, so that {name!r} is one of {', '.join(DTYPES)}")
        specs.append(TensorSpec(name=str(name), dtype=dtype, shape=tuple(_size(size, ranges) for size in value.shape)))
    return tuple(specs)


def _vocabulary(program: torch.export.ExportedProgram) -> int:
    """Rows of the smallest embedding table."""
    tables = [node.args[0].meta["val"].shape[0] for node in program.graph.nodes
              if node.target is torch.ops.aten.embedding.default]
    return min(tables, default=DEFAULT_VOCABULARY)


def _size(size: int | torch.SymInt, ranges: dict[str, Any]) -> int | str:
    if isinstance(size, int):
        return size
    bounds = ranges.get(str(size))
    if bounds is None:
        return str(size)
    low, high = _bound(bounds.lower, 1), _bound(bounds.upper, UNBOUNDED)
    return f"{max(low, 1)}..{high}" if high < UNBOUNDED else str(size)


def _bound(value: Any, otherwise: int) -> int:
    """SymPy integers and Python's; infinities are ``otherwise``."""
    return int(value) if isinstance(value, int) or getattr(value, "is_Integer", False) else otherwise


def _renamed(inputs: tuple[TensorSpec, ...], stated: Interface) -> tuple[TensorSpec, ...]:
    """The user's names and ranges, by position: a program's own names come from its Python source."""
    if len(inputs) != len(stated.inputs):
        raise UserError("InterfaceInvalid", f"the program takes {len(inputs)} inputs, {len(stated.inputs)} are named",
                        field="spec.interface.inputs", value=len(stated.inputs),
                        remedy=f"name {', '.join(spec.name for spec in inputs)}, in this order")
    for own, other in zip(inputs, stated.inputs, strict=True):
        if own.dtype != other.dtype or (other.shape and len(own.shape) != len(other.shape)):
            raise UserError("InterfaceInvalid", f"input {other.name!r}: the program takes {own.dtype} "
                            f"{shape_text(own.shape)}, not {other.dtype} {shape_text(other.shape)}",
                            field=f"spec.interface.inputs[{other.name}]", value=list(other.shape),
                            remedy="write what the program takes")
    return tuple(dataclasses.replace(own, name=other.name,
                                     shape=tuple(size if isinstance(size, int) else new for size, new
                                                 in zip(own.shape, other.shape or own.shape, strict=True)))
                 for own, other in zip(inputs, stated.inputs, strict=True))


def _output_names(program: torch.export.ExportedProgram, interface: Interface | None, inputs: Collection[str]
                  ) -> list[str]:
    if interface is not None and interface.outputs:
        return [spec.name for spec in interface.outputs]
    # The program says what it puts its answers into: a dict of theirs has keys.
    places = [torch.empty(0)] * len(program.graph_signature.user_outputs)
    return flat_names(pytree.tree_unflatten(places, program.call_spec.out_spec), inputs)


def _call(module: Any, interface: Interface, size: int) -> Any:
    example = example_inputs(interface, 2, size=size)
    return _answer(module, interface.inputs, [torch.from_numpy(example[spec.name]) for spec in interface.inputs])


def _answer(module: Any, inputs: Sequence[TensorSpec], tensors: Sequence[torch.Tensor]) -> Any:
    """Raises :class:`UserError` ``InterfaceInvalid``."""
    try:
        return module(*tensors)
    except Exception as error:  # of the program's own operators, and of PyTorch's checks
        given = ", ".join(f"{spec.name} {list(tensor.shape)}" for spec, tensor in zip(inputs, tensors, strict=True))
        raise known_or(error, UserError(
            "InterfaceInvalid", f"the program fails on made-up inputs of its own shapes ({given}): {last_line(error)}",
            field="spec.interface.inputs", value=given,
            remedy="write the sizes that it takes into spec.interface.inputs, as numbers or ranges, and give values in "
                   "the sizes that fit them")) from error
