"""What all PyTorch sources share: running eagerly and exporting through ``torch.export`` to ONNX."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import BuilderError, UserError, first_line, known_or, last_line
from enginewright_builder.models.base import Tokenize, TorchProgram
from enginewright_builder.models.bfloat_weights import align_weights
from enginewright_builder.models.onnx_translations import translations
from enginewright_builder.models.synthetic import DEFAULT_VOCABULARY, example_inputs, half_filled, usual_size
from enginewright_builder.models.torch_precision import FULL, HALF, Adapted, flatten, lowered, on_device, tf32
from enginewright_builder.onnx_names import finish_export, placeholder_names
from enginewright_builder.shapes import BATCH, UNBOUNDED, shape_text, size_range
from enginewright_builder.tensors import Call, Tensors

# More than one, or the exporter takes the batch for a constant (pytorch issue 148629).
EXAMPLE_BATCH = 3
EXAMPLE_SIZE = 16
# A size for an error's words.
_SUCH_AS = 128
# Of one call. The largest models without a loop run some thousands. PyTorch's exporter writes fewer than a hundred of
# them a second, and was not done with 28,000 after a quarter of an hour.
_MOST_OPERATORS = 20_000


class TorchModel:
    """A module called with keyword or positional tensors, in the order of ``interface.inputs``, on ``device``.

    The module returns a tensor, a sequence or a mapping of tensors, in the order of ``interface.outputs``.
    """

    def __init__(self, module: torch.nn.Module, interface: Interface, *, name: str, keywords: bool = False,
                 tokenize: Tokenize | None = None, vocabulary: int = DEFAULT_VOCABULARY, device: str = "cpu",
                 pad_token: int = 0, end_token: int | None = None) -> None:
        self.module, self.interface, self.name, self.device = module.to(device), interface, name, device
        self.tokenize, self.vocabulary, self._keywords = tokenize, vocabulary, keywords
        self.candidate, self.notes, self.pad_token = "", tuple[str, ...](), pad_token
        self.end_token, self.table_rows = end_token, dict[str, int]()
        # What helps where the export answers otherwise, if anything is known of the model that may be why.
        self.if_mismatched = ""
        self._adapted = Adapted(self.module, interface, keywords=keywords)

    def run(self, inputs: Tensors) -> Tensors:
        try:
            with torch.inference_mode(), tf32(False):
                outputs = [tensor.cpu().numpy() for tensor in self._adapted(*self._tensors(inputs))]
        except Exception as error:  # a model fails in as many ways as there are kinds of them
            raise _cannot_answer(error, inputs) from error
        return dict(zip((spec.name for spec in self.interface.outputs), outputs, strict=True))

    def with_sizes(self, inputs: tuple[TensorSpec, ...], tokenize: Tokenize | None) -> TorchModel:
        """The same module for inputs of these sizes. Raises :class:`UserError` ``UnsupportedModel`` where it does not
        answer them, or none that are filled up."""
        other = copy.copy(self)
        other.interface, other.tokenize = dataclasses.replace(self.interface, inputs=inputs), tokenize
        example = example_inputs(other.interface, 2, end_token=self.end_token)
        answers = other.run(example)
        other.run({name: half_filled(name, array) for name, array in example.items()})
        other.interface = Interface(inputs=inputs, outputs=tuple(
            dataclasses.replace(spec, shape=(BATCH, *answers[spec.name].shape[1:])) for spec in self.interface.outputs))
        return other

    def operators(self, size: int) -> int:
        """How many operators one call runs, with ``size`` for each free size."""
        example = example_inputs(self.interface, 1, size=size, end_token=self.end_token)
        return _counted(self._adapted, self._tensors(example))

    def bind(self, inputs: Tensors) -> Call:
        return on_device(self._adapted, self._tensors(inputs), self.device)

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        """The module itself in half precision, rather than a conversion of its FP32 graph: what the framework keeps in
        FP32 within its operators stays so."""
        try:
            program = self._program(precision)
            if precision == "fp32":  # the first export; what runs in half precision need not run eagerly
                _check_loops(program)
            write_onnx(program, self.interface, path, opset)
        except UserError:
            raise
        except Exception as error:
            raise export_failed(error, self.interface) from error
        if precision == "bf16":
            align_weights(path)

    def torch_program(self, precision: str, batch: int = 0) -> TorchProgram | None:
        return self._program(precision, batch)

    def _program(self, precision: str, batch: int = 0) -> TorchProgram:
        example = example_inputs(self.interface, batch or EXAMPLE_BATCH,
                                 size=usual_size(self.interface, EXAMPLE_SIZE), end_token=self.end_token)
        shapes = tuple(_dynamic_shape(spec, frozen_batch=batch > 0) for spec in self.interface.inputs)
        return TorchProgram(module=self._in(precision), args=self._tensors(example), dynamic_shapes={"inputs": shapes})

    def _in(self, precision: str) -> Adapted:
        if precision in FULL:
            return self._adapted
        within = HALF[precision]
        return Adapted(lowered(self.module, within), self.interface, keywords=self._keywords, within=within).eval()

    def _tensors(self, inputs: Tensors) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(np.ascontiguousarray(inputs[spec.name])).to(self.device)
                     for spec in self.interface.inputs)


def _check_loops(program: TorchProgram) -> None:
    """Raises :class:`UserError` ``UnsupportedModel`` for a graph that takes the exporter too long."""
    operators = _counted(program.module, program.args)
    if operators > _MOST_OPERATORS:
        raise UserError("UnsupportedModel", f"one call runs {operators:,} operators, as a loop over tokens or steps "
                        f"does: PyTorch's exporter writes out each, and the build takes {_MOST_OPERATORS:,} at most",
                        field="spec.source", value=operators,
                        remedy="give an ONNX file that has the loop as such (Loop, Scan), or the body of the loop as "
                               "the model, for clients to call step by step")


def _counted(module: Any, arguments: tuple[torch.Tensor, ...]) -> int:
    counting = _Counting()  # type: ignore[no-untyped-call]
    with torch.no_grad(), counting:
        module(*arguments)
    return counting.operators


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    operators: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators += 1
        return func(*args, **(kwargs or {}))


def write_onnx(program: TorchProgram, interface: Interface, path: Path, opset: int) -> None:
    """Raises what PyTorch's exporter does, in many classes."""
    inputs, outputs = ([spec.name for spec in specs] for specs in (interface.inputs, interface.outputs))
    with quiet(), torch.no_grad():
        torch.onnx.export(
            program.module, program.args, str(path), dynamic_shapes=program.dynamic_shapes,
            input_names=placeholder_names("in", inputs), output_names=placeholder_names("out", outputs),
            opset_version=opset, dynamo=True, external_data=False, optimize=True, report=False, verify=False,
            custom_translation_table=translations())
    finish_export(path, interface)


def _dynamic_shape(spec: TensorSpec, *, frozen_batch: bool) -> dict[int, Any]:
    """Every dimension that may vary is dynamic; ``torch.export`` finds out which of them are equal."""
    return {axis: torch.export.Dim.DYNAMIC for axis, size in enumerate(spec.shape)
            if size_range(size)[0] != size_range(size)[1] and not (frozen_batch and axis == 0)}


def export_failed(error: Exception, interface: Interface | None = None) -> BuilderError:
    """The user's to mend, unless it is memory. Some models that cannot be exported with free sizes can with one."""
    cause = error.__cause__ or error.__context__
    detail = f" ({first_line(cause)})" if cause and str(cause).strip() else ""
    return known_or(error, UserError(
        "ExportFailed", f"PyTorch cannot export the model to ONNX: {first_line(error, 300)}{detail}",
        field="spec.source", remedy="export it to ONNX yourself and give the .onnx file, or make the forward pass free "
                                    "of branches on tensor values" + _one_size(interface)))


def _one_size(interface: Interface | None) -> str:
    free = next((spec for spec in interface.inputs if has_free_sizes(Interface(inputs=(spec,)))), None) \
        if interface else None
    if free is None:
        return ""
    fixed = shape_text((BATCH, *(min(size_range(size)[1], _SUCH_AS) for size in free.shape[1:])))
    return f"; or write one size into spec.interface.inputs, to which clients fill up, such as {free.name} {fixed}"


def _cannot_answer(error: Exception, inputs: Tensors) -> BuilderError:
    given = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
    return known_or(error, UserError(
        "UnsupportedModel", f"the model fails on {given}: {last_line(error)}", field="spec.interface.inputs",
        value=given, remedy="give evaluation data that it takes, or write the sizes that it takes into "
                            "spec.interface.inputs, as numbers or ranges"))


class NoBatchError(UserError):
    """An output whose first size is not the batch."""


def observed_outputs(value: Any, names: Sequence[str], batch: int) -> tuple[TensorSpec, ...]:
    """Output types and shapes as seen for a batch of ``batch``, with sizes other than the batch taken as they are."""
    tensors = flatten(value)
    if len(names) != len(tensors):
        raise UserError("InterfaceInvalid", f"the model returns {len(tensors)} outputs, {len(names)} are named",
                        field="spec.interface.outputs", value=", ".join(names), remedy="name every output, in order")
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.dim() == 0 or tensor.shape[0] != batch:
            raise NoBatchError("UnsupportedModel", f"output {name!r} has shape {list(tensor.shape)} for a batch of "
                            f"{batch}",
                            field="spec.source", remedy="let every output have the batch as its first dimension")
    return tuple(TensorSpec(name=name, dtype=str(tensor.dtype).removeprefix("torch."), shape=(BATCH, *tensor.shape[1:]))
                 for name, tensor in zip(names, tensors, strict=True))


def with_free_sizes(small: tuple[TensorSpec, ...], large: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """Output shapes where those sizes that grew with the inputs' free sizes are free."""
    return tuple(
        TensorSpec(name=one.name, dtype=one.dtype,
                   shape=tuple(size if size == other else f"{one.name}_{axis}"
                               for axis, (size, other) in enumerate(zip(one.shape, two.shape, strict=True))))
        for one, two in zip(small, large, strict=True))


def has_free_sizes(interface: Interface) -> bool:
    return any(size_range(size)[1] == UNBOUNDED or size_range(size)[0] != size_range(size)[1]
               for spec in interface.inputs for size in spec.shape[1:])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The exporter prints its own progress; ours is structured, and goes to the same stream."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
