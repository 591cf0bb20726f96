"""``config.pbtxt`` through Triton's own protobuf schema, never by pasting strings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from google.protobuf import text_format
from numpy.typing import NDArray
from tritonclient.grpc import model_config_pb2 as schema

from enginewright_builder.contract import Interface, SequenceBatching, ServingChoice, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.sequences import answered, sent
from enginewright_builder.shapes import shape_text
from enginewright_builder.tensors import Tensors
from enginewright_builder.wire import wire_shape

# Names of NumPy and ONNX on the left, of Triton's schema on the right.
DATATYPES = {
    "bool": "TYPE_BOOL", "uint8": "TYPE_UINT8", "uint16": "TYPE_UINT16", "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64", "int8": "TYPE_INT8", "int16": "TYPE_INT16", "int32": "TYPE_INT32", "int64": "TYPE_INT64",
    "float16": "TYPE_FP16", "float32": "TYPE_FP32", "float64": "TYPE_FP64", "string": "TYPE_STRING",
    "bfloat16": "TYPE_BF16",
}
# The Python backend hands tensors over as NumPy arrays, and NumPy has no bfloat16.
NOT_IN_PYTHON = {"bfloat16"}
BACKENDS = ("python", "onnxruntime", "tensorrt")
# Parameter of a model that takes NaN for a value that is missing, as its source does: who has no source reads it.
TAKES_MISSING = "takes_missing"


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """All that a ``config.pbtxt`` says.

    ``interface`` has the batch first in every shape, as in :class:`ExportedModel`; with ``serving.max_batch_size`` 0
    the shapes are written whole. ``gpus`` empty means CPU; several get ``serving.instance_count`` instances each.
    ``profiles`` are TensorRT optimisation profile indices, ``graph_batches`` the batch sizes captured as CUDA graphs.
    ``warmup`` is one batch of inputs (its leading size is the batch); None leaves warm-up out. ``ragged`` names inputs
    that may differ in shape among requests of one batch.
    """

    name: str
    triton_backend: str
    interface: Interface
    serving: ServingChoice
    parameters: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[int, ...] = ()
    profiles: tuple[int, ...] = ()
    graph_batches: tuple[int, ...] = ()
    default_model_filename: str = ""
    warmup: Tensors | None = None
    ragged: frozenset[str] = frozenset()


def model_config(model: ServedModel) -> schema.ModelConfig:
    """Raises :class:`UserError` ``InterfaceInvalid`` for a type or shape that Triton cannot take, ``ServingInvalid``
    for a backend it does not have or preferred batch sizes above the maximum."""
    _check_serving(model)
    config = schema.ModelConfig(name=model.name, max_batch_size=model.serving.max_batch_size,
                                default_model_filename=model.default_model_filename)
    if model.triton_backend == "tensorrt":
        config.platform = "tensorrt_plan"
    else:
        config.backend = model.triton_backend
    for spec in sent(model.interface):
        _fill_tensor(config.input.add(), spec, model)
        config.input[-1].allow_ragged_batch = spec.name in model.ragged
    for spec in answered(model.interface):
        _fill_tensor(config.output.add(), spec, model)
    if model.interface.sequence_batching:
        _fill_sequences(config, model.interface.sequence_batching, model.serving)
    else:
        _fill_batching(config, model.serving)
    _fill_instances(config, model)
    _fill_graphs(config, model)
    for key in sorted(model.parameters):
        config.parameters[key].string_value = model.parameters[key]
    if model.warmup is not None:
        _fill_warmup(config, model.warmup)
    return config


def to_text(config: schema.ModelConfig) -> str:
    """Text format, with ``max_batch_size: 0`` written out: text format drops defaults, and Triton then guesses."""
    text = text_format.MessageToString(config)
    return text if config.max_batch_size else f"max_batch_size: 0\n{text}"


def parse_text(text: str) -> schema.ModelConfig:
    """Raises ``google.protobuf.text_format.ParseError``."""
    return text_format.Parse(text, schema.ModelConfig())


def tensor_dims(spec: TensorSpec, *, batched: bool) -> list[int]:
    """Dims as Triton writes them: free dimensions are -1, and a batched model's first dimension is implied."""
    if not spec.shape:
        raise _interface_error(spec, "shape is empty", "state the shape with the batch first, such as [batch, 1..512]")
    shape = spec.shape
    if batched:
        if isinstance(shape[0], int) and shape[0] >= 0:
            raise _interface_error(spec, f"first dimension is fixed at {shape[0]}, but requests are to be batched",
                                   "export the model with a free batch dimension, or set spec.engine.maxBatchSize: 0")
        shape = shape[1:]
    dims = [size if isinstance(size, int) and size >= 0 else -1 for size in shape]
    if 0 in dims:
        raise _interface_error(spec, f"shape {shape_text(spec.shape)} has a dimension of size 0",
                               "use sizes of at least 1")
    return dims


def _interface_error(spec: TensorSpec, problem: str, remedy: str) -> UserError:
    return UserError("InterfaceInvalid", f"tensor {spec.name!r}: {problem}", field=f"spec.interface[{spec.name}]",
                     value=f"{spec.dtype}{shape_text(spec.shape)}", remedy=remedy)


def _check_serving(model: ServedModel) -> None:
    serving = model.serving
    if model.triton_backend not in BACKENDS:
        raise UserError("ServingInvalid", f"no Triton backend {model.triton_backend!r}", field="spec.engine.backend",
                        value=model.triton_backend, remedy=f"use one of {', '.join(BACKENDS)}")
    if serving.max_batch_size < 0 or serving.instance_count < 1 or serving.max_queue_delay_us < 0:
        raise UserError("ServingInvalid", "max batch size and queue delay must be at least 0, "
                        "instance count at least 1", field="spec.batching", value=serving, remedy="correct the number")
    wrong = [size for size in serving.preferred_batch_sizes if not 1 <= size <= serving.max_batch_size]
    if wrong:
        raise UserError("ServingInvalid",
                        f"preferred batch size {wrong[0]} is not within 1 and the maximum {serving.max_batch_size}",
                        field="spec.batching.preferredBatchSizes", value=wrong[0],
                        remedy="raise spec.engine.maxBatchSize or drop that size")


def _fill_tensor(message: schema.ModelInput | schema.ModelOutput, spec: TensorSpec, model: ServedModel) -> None:
    if spec.dtype not in DATATYPES or (model.triton_backend == "python" and spec.dtype in NOT_IN_PYTHON):
        known = sorted(set(DATATYPES) - (NOT_IN_PYTHON if model.triton_backend == "python" else set()))
        raise _interface_error(spec, f"type {spec.dtype!r} cannot cross Triton's {model.triton_backend} backend",
                               f"use one of {', '.join(known)}")
    message.name = spec.name
    message.data_type = schema.DataType.Value(DATATYPES[spec.dtype])
    batched = model.serving.max_batch_size > 0
    on_wire = replace(spec, shape=wire_shape(spec.shape, batched=batched))
    message.dims.extend(tensor_dims(on_wire, batched=batched))
    if on_wire.shape != spec.shape:
        message.reshape.SetInParent()  # to no dimension behind the batch


def _fill_batching(config: schema.ModelConfig, serving: ServingChoice) -> None:
    if serving.max_batch_size < 2:
        return  # nothing to gather
    config.dynamic_batching.SetInParent()
    config.dynamic_batching.preferred_batch_size.extend(serving.preferred_batch_sizes)
    config.dynamic_batching.max_queue_delay_microseconds = serving.max_queue_delay_us


def _fill_sequences(config: schema.ModelConfig, how: SequenceBatching, serving: ServingChoice) -> None:
    """Without control inputs and ``state``: the model in the Python backend asks the request itself for its sequence
    and keeps the state, which Triton does for backends of its own alone (docs/adr/0047-sequences.md). The batcher is
    the sequences' own, and Triton allows no other beside it."""
    config.sequence_batching.max_sequence_idle_microseconds = how.max_sequence_idle_us
    oldest = config.sequence_batching.oldest
    oldest.max_candidate_sequences = how.max_candidate_sequences
    if serving.max_batch_size > 1:
        oldest.preferred_batch_size.extend(serving.preferred_batch_sizes)
        oldest.max_queue_delay_microseconds = serving.max_queue_delay_us


def _fill_instances(config: schema.ModelConfig, model: ServedModel) -> None:
    group = config.instance_group.add()
    group.count = model.serving.instance_count
    group.kind = schema.ModelInstanceGroup.KIND_GPU if model.gpus else schema.ModelInstanceGroup.KIND_CPU
    group.gpus.extend(model.gpus)
    group.profile.extend(str(index) for index in model.profiles)


def _fill_graphs(config: schema.ModelConfig, model: ServedModel) -> None:
    """CUDA graphs for exactly the wanted batches. Each spec names every input's dims: replay needs fixed shapes, so a
    model with other free dimensions gets none."""
    if not model.graph_batches:
        return
    dims = {spec.name: tensor_dims(spec, batched=model.serving.max_batch_size > 0) for spec in model.interface.inputs}
    free = [name for name, sizes in dims.items() if -1 in sizes]
    if free:
        raise UserError("ServingInvalid", f"CUDA graphs need fixed shapes, but input {free[0]!r} has a free dimension",
                        field="spec.interface", value=free[0], remedy="fix the dimension or build without CUDA graphs")
    cuda = config.optimization.cuda
    cuda.graphs = True
    for batch in model.graph_batches:
        spec = cuda.graph_spec.add(batch_size=batch)
        for name, sizes in dims.items():
            spec.input[name].dim.extend(sizes)


def _fill_warmup(config: schema.ModelConfig, warmup: Tensors) -> None:
    """One sample alone and one at full batch, so that both ends of the service curve are warm when ready says yes."""
    batches = sorted({1, config.max_batch_size}) if config.max_batch_size else [0]
    for batch in batches:
        sample = config.model_warmup.add(name=f"batch-{batch}" if batch else "whole", batch_size=batch)
        for index, tensor in enumerate(config.input):
            array = _warmup_array(warmup, tensor.name, batched=bool(batch))
            entry = sample.inputs[tensor.name]
            entry.data_type = tensor.data_type
            entry.dims.extend(array.shape or (1,))
            # By its place: names of inputs may have what names of files may not.
            entry.input_data_file = f"{'sample' if batch else 'whole'}-{index}"


def warmup_data(config: schema.ModelConfig, warmup: Tensors) -> dict[str, bytes]:
    """File name to raw bytes for all that ``config.model_warmup`` names."""
    files: dict[str, bytes] = {}
    for sample in config.model_warmup:
        for name, entry in sample.inputs.items():
            array = _warmup_array(warmup, name, batched=sample.batch_size > 0)
            files[entry.input_data_file] = _raw(array)
    return files


def _warmup_array(warmup: Tensors, name: str, *, batched: bool) -> NDArray[Any]:
    if name not in warmup:
        raise UserError("InterfaceInvalid", f"warm-up data lacks input {name!r}", field="spec.interface", value=name,
                        remedy=f"give all inputs; there are {', '.join(sorted(warmup))}")
    return np.ascontiguousarray(warmup[name][0] if batched else warmup[name])


def _raw(array: NDArray[Any]) -> bytes:
    if array.dtype != np.object_:
        return array.tobytes()
    texts = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
