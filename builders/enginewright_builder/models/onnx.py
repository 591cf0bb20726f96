"""ONNX as a source: the given graph in ONNX Runtime is the reference, and its own export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from enginewright_builder.contract import Interface
from enginewright_builder.errors import UserError
from enginewright_builder.models.base import Tokenize, not_in
from enginewright_builder.models.synthetic import DEFAULT_VOCABULARY, example_inputs
from enginewright_builder.onnx_interface import graph_interface
from enginewright_builder.ort_session import CUDA, OrtRunner, has_provider
from enginewright_builder.shapes import BATCH, checked
from enginewright_builder.tensors import Array, Call, Tensors

_FIELD = "spec.source.uri"
# Two runs of one graph at different batch sizes may sum in another order; more than this is another answer.
_SAME = 1e-3


class OnnxModel:
    """``path`` is an ONNX whose batch is free."""

    tokenize: Tokenize | None = None

    def __init__(self, path: Path, interface: Interface, *, vocabulary: int = DEFAULT_VOCABULARY,
                 device: str = "cpu") -> None:
        self.path, self.interface, self.vocabulary = path, interface, vocabulary
        self.name = "ONNX as given, on ONNX Runtime"
        self._on_gpu = device != "cpu" and has_provider(CUDA)
        # ONNX Runtime's CUDA provider uses TF32 unless told not to.
        self.candidate = "onnxruntime tf32" if self._on_gpu else "onnxruntime fp32"
        self._runner: OrtRunner | None = None
        self._timed: OrtRunner | None = None

    def run(self, inputs: Tensors) -> Tensors:
        """On the CPU whatever the device: the CUDA provider rounds products to TF32."""
        self._runner = self._runner or _open(self.path)
        return self._runner(inputs)

    def bind(self, inputs: Tensors) -> Call:
        """On the device where ONNX Runtime has its provider, as a server of the file would run it today."""
        if not self._on_gpu:
            return lambda: self.run(inputs)
        self._timed = self._timed or _open(self.path, "gpu")
        return self._timed.bind(inputs)

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        """The graph keeps its own operator set: a conversion could only change it."""
        del opset
        if precision != "fp32":
            raise not_in(precision, "ONNX")
        model = onnx.load(str(self.path))
        _save(model, path)

    def torch_program(self, precision: str, batch: int = 0) -> None:
        return None


def load_onnx(path: Path, interface: Interface | None, workspace: Path | None = None,
              device: str = "cpu") -> OnnxModel:
    """Raises :class:`UserError` ``InterfaceInvalid``, ``BatchFixed`` or ``SourceCorrupt``."""
    model = onnx.load(str(path), load_external_data=False)
    if _negative(model):
        path = _named_sizes(path, (workspace or path.parent) / f"{path.stem}.named-sizes.onnx")
        model = onnx.load(str(path), load_external_data=False)
    found = graph_interface(model)
    if interface is not None:
        found = _merge(found, checked(interface))
    fixed = _fixed_batch(model)
    if fixed is None:
        return OnnxModel(path, found, vocabulary=_vocabulary(model), device=device)
    freed = (workspace or path.parent) / f"{path.stem}.free-batch.onnx"
    return _free_batch(path, freed, found, fixed, device)


def _negative(model: onnx.ModelProto) -> list[tuple[onnx.ValueInfoProto, int]]:
    """Inputs and outputs, and the places of sizes that some exporters write as -1 where they are free."""
    return [(value, axis) for value in (*model.graph.input, *model.graph.output)
            for axis, dim in enumerate(value.type.tensor_type.shape.dim)
            if dim.HasField("dim_value") and dim.dim_value < 0]


def _named_sizes(path: Path, named: Path) -> Path:
    """``path`` with names for the sizes that are free, as ONNX has it; libraries take -1 for a size."""
    model = onnx.load(str(path))
    for value, axis in _negative(model):
        value.type.tensor_type.shape.dim[axis].dim_param = BATCH if axis == 0 else f"{value.name}_{axis}"
    del model.graph.value_info[:]
    _save(model, named)
    return named


def _vocabulary(model: onnx.ModelProto) -> int:
    """Rows of the smallest table that is looked up in."""
    tables = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if len(tensor.dims) == 2}
    rows = [tables[node.input[0]] for node in model.graph.node if node.op_type == "Gather" and node.input[0] in tables]
    return max(1, min(rows, default=DEFAULT_VOCABULARY))


def _merge(found: Interface, stated: Interface) -> Interface:
    """The graph's interface with the user's ranges. Raises :class:`UserError` ``InterfaceInvalid`` where they
    differ."""
    known = {spec.name: spec for spec in found.inputs}
    stated_inputs = {spec.name: spec for spec in stated.inputs}
    if set(known) != set(stated_inputs):
        raise UserError("InterfaceInvalid", f"the model takes {', '.join(known)}, not {', '.join(stated_inputs)}",
                        field="spec.interface.inputs", value=", ".join(stated_inputs),
                        remedy="name the model's own inputs, or leave interface out: the source tells it")
    for name, spec in stated_inputs.items():
        own = known[name]
        fits = len(own.shape) == len(spec.shape) and own.dtype == spec.dtype and all(
            not isinstance(size, int) or size == other for size, other in zip(own.shape, spec.shape, strict=True))
        if not fits:
            raise UserError("InterfaceInvalid", f"input {name!r} is {own.dtype} {list(own.shape)} in the model, not "
                            f"{spec.dtype} {list(spec.shape)}", field=f"spec.interface.inputs[{name}]",
                            value=list(spec.shape), remedy="write what the model takes")
    return Interface(inputs=tuple(stated_inputs[spec.name] for spec in found.inputs), outputs=found.outputs)


def _fixed_batch(model: onnx.ModelProto) -> int | None:
    constants = {tensor.name for tensor in model.graph.initializer}
    sizes = {value.type.tensor_type.shape.dim[0].dim_value for value in model.graph.input
             if value.name not in constants and value.type.tensor_type.shape.dim[0].HasField("dim_value")}
    return max(sizes) if sizes else None


def _free_batch(path: Path, freed: Path, interface: Interface, fixed: int, device: str) -> OnnxModel:
    """Many graphs are frozen in their declared shapes only: they are freed, and tried at other batches."""
    model = onnx.load(str(path))
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = BATCH
    del model.graph.value_info[:]
    try:
        _save(model, freed)
        loose = OnnxModel(freed, interface, vocabulary=_vocabulary(model), device=device)
        strict = OnnxModel(path, interface)
        inputs = example_inputs(interface, fixed)
        if _agree(loose, strict, inputs, fixed):
            return loose
    except Exception as error:  # ONNX Runtime's own classes, whatever the graph trips over
        raise _batch_fixed(path, fixed, str(error).strip().splitlines()[0][:200]) from error
    raise _batch_fixed(path, fixed, "its answers depend on what else is in the batch")


def _agree(loose: OnnxModel, strict: OnnxModel, inputs: Tensors, fixed: int) -> bool:
    """Whether each sample alone, and two copies of the batch together, answer as the frozen graph does."""
    expected = strict.run(inputs)
    single = loose.run({name: array[:1] for name, array in inputs.items()})
    double = loose.run({name: np.concatenate([array, array]) for name, array in inputs.items()})
    return all(_close(single[name], expected[name][:1]) and _close(double[name][fixed:], expected[name])
               for name in expected)


def _close(got: Array, expected: Array) -> bool:
    return got.shape == expected.shape and bool(np.allclose(got, expected, rtol=_SAME, atol=_SAME))


def _batch_fixed(path: Path, fixed: int, why: str) -> UserError:
    return UserError("BatchFixed", f"{path.name} is frozen to a batch of {fixed}: {why}", field=_FIELD, value=fixed,
                     remedy="export it again with a dynamic first dimension")


def _open(path: Path, accelerator: str = "cpu") -> OrtRunner:
    try:
        return OrtRunner(path, accelerator=accelerator)
    except Exception as error:  # ONNX Runtime's own classes
        raise UserError("UnsupportedModel", f"ONNX Runtime cannot open {path.name}: {str(error).strip()[:300]}",
                        field=_FIELD, value=path, remedy="export the model with standard ONNX operators") from error


def _save(model: onnx.ModelProto, path: Path) -> None:
    # Protobuf ends at 2 GiB; above that the weights go beside the graph.
    large = model.ByteSize() > 1_800_000_000
    onnx.save(model, str(path), save_as_external_data=large, location=f"{path.name}.data")


