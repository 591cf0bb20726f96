"""TorchScript: runs in PyTorch's own interpreter, which knows tensors and nothing of the machine.

The format says neither types nor shapes, so the user does, in ``spec.interface``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from enginewright_builder.constants import constant_notes, constants_of, without_constants
from enginewright_builder.contract import Interface
from enginewright_builder.errors import BuilderError, UserError, first_line, known_or, last_line
from enginewright_builder.models.base import SourceModel, not_in
from enginewright_builder.models.onnx import OnnxModel
from enginewright_builder.models.script_arguments import arguments_of
from enginewright_builder.models.script_translations import teach_exporter
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.models.torch_arguments import Called
from enginewright_builder.models.torch_base import (
    EXAMPLE_BATCH,
    EXAMPLE_SIZE,
    NoBatchError,
    TorchModel,
    export_failed,
    observed_outputs,
    quiet,
    with_free_sizes,
)
from enginewright_builder.models.torch_precision import flat_names
from enginewright_builder.models.torch_records import check_as_torch_reads
from enginewright_builder.models.torch_whole import through_onnx
from enginewright_builder.onnx_names import finish_export, placeholder_names
from enginewright_builder.shapes import STRING, checked, size_range, takes_batches
from enginewright_builder.sources.torchscript import check_script, check_torchscript, needs_interface
from enginewright_builder.tensors import Tensors


class TorchScriptModel(TorchModel):
    """Exported by tracing, and as it is: neither ``torch.export`` nor a trace in another precision takes script
    modules, so there is no program to compile either."""

    def torch_program(self, precision: str, batch: int = 0) -> None:
        return None

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        if precision != "fp32":
            raise not_in(precision, "TorchScript")
        example = self._tensors(example_inputs(self.interface, EXAMPLE_BATCH, size=EXAMPLE_SIZE))
        specs = [*self.interface.inputs, *self.interface.outputs]
        names = [*placeholder_names("in", [spec.name for spec in self.interface.inputs]),
                 *placeholder_names("out", [spec.name for spec in self.interface.outputs])]
        axes = {name: {axis: f"{name}_{axis}" if axis else "batch" for axis, size in enumerate(spec.shape)
                       if size_range(size)[0] != size_range(size)[1]}
                for name, spec in zip(names, specs, strict=True)}
        count = len(self.interface.inputs)
        with quiet(), torch.no_grad():
            try:
                # The older exporter: the newer one goes through torch.export, which refuses script modules.
                torch.onnx.export(_script(self.module, example), example, str(path), input_names=names[:count],
                                  output_names=names[count:], dynamic_axes=axes, opset_version=min(opset, 20),
                                  dynamo=False)
            except Exception as error:
                raise export_failed(error) from error
        finish_export(path, self.interface)


def load_torchscript(path: Path, interface: Interface | None, device: str = "cpu",
                     workspace: Path | None = None) -> SourceModel:
    """``workspace`` is where a model without a batch in front is exported to. Raises :class:`UserError`
    ``InterfaceNeeded``, ``InterfaceInvalid``, ``SourceCorrupt``, ``PickleRefused``, ``UnsupportedModel``, or what
    exports do."""
    teach_exporter()
    check_torchscript(path)
    check_as_torch_reads(path, check_script)
    module = _load(path)
    if interface is None or not interface.inputs:
        raise needs_interface(path)
    values = constants_of(interface, interface)
    stated = checked(without_constants(interface))
    if texts := [spec.name for spec in stated.inputs if spec.dtype == STRING]:
        raise UserError("InterfaceInvalid", f"input {texts[0]!r} is of type string, and PyTorch has no such tensors",
                        field=f"spec.interface.inputs[{texts[0]}].dtype", value=STRING,
                        remedy="give the numbers that the texts become, or an ONNX file that takes texts")
    names = [spec.name for spec in interface.inputs]
    arguments = arguments_of(module, names)
    if sent := [spec.name for spec in stated.inputs if spec.name in arguments.numbers]:
        raise UserError("InterfaceInvalid", f"the model takes {sent[0]!r} as a number, not as a tensor, so that no "
                        "request can hold it", field=f"spec.interface.inputs[{sent[0]}]", value=sent[0],
                        remedy="give it the value that it has in every request")
    # The exporter knows tensors alone, and neither arguments that are left out nor such as may be.
    filled = module if arguments.plain and not values else Called(module, names, values, arguments.numbers,
                                                                  arguments.structure)
    notes = constant_notes(values)
    try:
        if takes_batches(Interface(inputs=stated.inputs)):
            loaded = TorchScriptModel(filled, _observed(filled, stated), name="TorchScript, FP32", device=device)
            loaded.notes = notes
            return loaded
    except NoBatchError:
        pass
    whole = _whole(path, filled, stated, workspace or path.parent, device)
    whole.notes = (*whole.notes, *notes)
    return whole


def _whole(path: Path, module: torch.nn.Module, stated: Interface, folder: Path, device: str) -> OnnxModel:
    def export(example: tuple[torch.Tensor, ...], graph: Path, into: list[str], out: list[str]) -> object:
        axes = {spec.name: {axis: size if ".." not in size else f"{spec.name}_{axis}" for axis, size in
                            enumerate(spec.shape) if isinstance(size, str)} for spec in stated.inputs}
        return torch.onnx.export(_script(module, example), example, str(graph), input_names=into, output_names=out,
                                 dynamic_axes=axes, opset_version=18, dynamo=False)

    def run(*tensors: torch.Tensor) -> Any:
        return _answer(module, tensors, stated)

    return through_onnx(path, "TorchScript", stated.inputs, [spec.name for spec in stated.outputs], run, export, folder,
                        device, {}, stated=True)


def _script(module: torch.nn.Module, example: tuple[torch.Tensor, ...]) -> Any:
    """One script, which the exporter takes: what stands around a script is traced, and branches within it stay."""
    if not isinstance(module, Called):
        return module
    traced = torch.jit.trace(module, example, check_trace=False)  # type: ignore[no-untyped-call]
    return torch.jit.freeze(traced.eval())


def _answer(module: torch.nn.Module, tensors: tuple[torch.Tensor, ...], stated: Interface) -> Any:
    """In what the model itself answers it in."""
    try:
        return module.answer(*tensors) if isinstance(module, Called) else module(*tensors)
    except (RuntimeError, ValueError, TypeError) as error:
        raise _fails(error, stated) from error


def _fails(error: Exception, stated: Interface) -> BuilderError:
    return known_or(error, UserError(
        "InterfaceInvalid", f"the model fails on inputs of the stated interface: {last_line(error)}",
        field="spec.interface.inputs", value=", ".join(spec.name for spec in stated.inputs),
        remedy="write the types and shapes that the model was made for"))


def _load(path: Path) -> torch.jit.ScriptModule:
    try:
        with quiet():
            module: torch.jit.ScriptModule = torch.jit.load(  # type: ignore[no-untyped-call]
                str(path), map_location="cpu")
            return module.eval()
    except (RuntimeError, ValueError, OSError) as error:
        raise known_or(error, UserError(
            "SourceCorrupt", f"{path.name} cannot be loaded: {first_line(error)}", field="spec.source.uri", value=path,
            remedy="copy the file again and state its digest in spec.source.digest")) from error


def _observed(module: torch.nn.Module, stated: Interface) -> Interface:
    seen = []
    for size in (5, 7):
        with quiet(), torch.inference_mode():
            value = _answer(module, _tensors(stated, 2, size), stated)
        names = [spec.name for spec in stated.outputs] or flat_names(value, [spec.name for spec in stated.inputs])
        seen.append(observed_outputs(value, names, 2))
    return Interface(inputs=stated.inputs, outputs=with_free_sizes(*seen))


def _tensors(interface: Interface, batch: int, size: int) -> tuple[torch.Tensor, ...]:
    example: Tensors = example_inputs(interface, batch, size=size)
    return tuple(torch.from_numpy(example[spec.name]) for spec in interface.inputs)
