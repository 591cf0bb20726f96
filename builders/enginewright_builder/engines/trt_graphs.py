"""The ONNX from which TensorRT builds: with the precision written into it, as strongly typed networks want it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

import onnx
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from enginewright_builder.engine_store import graphs
from enginewright_builder.engines.base import BuildContext, ExportedModel
from enginewright_builder.engines.graph_ahead import GraphAhead
from enginewright_builder.engines.modelopt_graphs import AUTOCAST, LOWER, QUANTIZE, Job, has_qdq, missing, rewrite
from enginewright_builder.engines.ort_quantize import write_int4_weights
from enginewright_builder.engines.trt_messages import candidate_failed
from enginewright_builder.errors import UserError, brief
from enginewright_builder.tensors import Tensors

GRAPH_FILE = "model.onnx"
FULL, HALF, QUANTISED = ("fp32", "tf32"), ("bf16", "fp16"), ("fp8", "int8")
# Products that read weights of four bits, and compute in FP16.
WEIGHTS = "int4-weight-only"
# The operator set from which on BF16 is a type of most operators.
_HALF_OPSET = {"fp16": 18, "bf16": 22}
# Raised when what is written into a graph changes: graphs in the store are then made again.
_VERSION = 2
# Before the precision, on the shelf: what is being written beside the builds.
_AHEAD = "graph ahead "
_TOOLS = ("nvidia-modelopt", "onnx", "onnx-graphsurgeon", "onnxruntime", "onnxscript", "torch", "transformers")
_LOW_TYPES = {"fp16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16}


def typed_graph(precision: str, model: ExportedModel, context: BuildContext) -> Path:
    """The graph of ``model`` that computes in ``precision``; made once, and used by all rungs of that precision, and by
    later builds of the same model where there is a store.

    Inputs and outputs keep their types. Raises :class:`UserError` ``CandidateFailed``.
    """
    if precision in FULL:
        return model.path
    target = context.workspace / f"tensorrt-{precision}" / GRAPH_FILE
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    if context.timing_caches is None:
        return _made(precision, model, context, target)
    key = graph_key(precision, model, context)
    found = graphs.load(context.timing_caches, key, target.parent, context.keys)
    if found.here:
        context.progress(0.05, f"the {precision} graph comes from the store")
        return target
    if found.problem:
        context.progress(0.0, f"typed graph ignored and made again: {found.problem}")
    _made(precision, model, context, target)
    if problem := graphs.save(context.timing_caches, key, _files(target), keys=context.keys):
        context.progress(0.05, f"typed graph not kept: {problem}")
    return target


def begin_graph(precision: str, model: ExportedModel, context: BuildContext) -> GraphAhead | None:
    """Starts to write ``precision`` into the graph in a process beside the builds, for :func:`typed_graph` to take.
    None where there is nothing for such a process: other precisions take seconds, and are the source's own export."""
    shelf, target = context.shelf, context.workspace / f"tensorrt-{precision}" / GRAPH_FILE
    if shelf is None or precision not in QUANTISED or context.keep_precise or target.exists() or has_qdq(model.path):
        return None
    if missing() or not context.calibration or shelf.get(_AHEAD + precision):
        return None
    if context.timing_caches is not None and graphs.holds(context.timing_caches,
                                                               graph_key(precision, model, context)):
        return None
    ahead = GraphAhead.started(precision, model.path, target.with_name(_part(target)), context.calibration)
    shelf.put(_AHEAD + precision, ahead)
    return ahead


def _begun(precision: str, context: BuildContext) -> GraphAhead | None:
    found = context.shelf.get(_AHEAD + precision) if context.shelf and not context.keep_precise else None
    return found if isinstance(found, GraphAhead) else None


def graph_key(precision: str, model: ExportedModel, context: BuildContext) -> str:
    """``fp16-`` and 32 hex digits over all that the graph is made from: the FP32 graph with its weights, the data that
    activations are measured on, the nodes left precise, whose export it is, and the tools."""
    made_from = {
        "version": _VERSION, "precision": precision, "graph": [_digest(path) for path in _files(model.path)],
        "data": _data_digest(_inputs(context) if precision in HALF else context.calibration),
        "keep": sorted(context.keep_precise), "source": type(context.source).__name__,
        "tools": {name: _tool(name) for name in _TOOLS}}
    return f"{precision}-{hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:32]}"


def _made(precision: str, model: ExportedModel, context: BuildContext, target: Path) -> Path:
    part = target.with_name(_part(target))
    if has_qdq(model.path):
        _keep_quantisation(precision, model, part)
    elif precision in HALF:
        _half(precision, model, context, part)
    elif precision == WEIGHTS:
        _int4_weights(model, context, part)
    else:
        _quantised(precision, model, context, part)
    if precision in HALF:
        _simplified(part, part, context)
        _check_types(precision, part)
    os.replace(part, target)
    return target


def _part(target: Path) -> str:
    """The name of a graph until it is whole."""
    return f"part-{target.name}"


def _files(graph: Path) -> list[Path]:
    """The graph, and the files beside it that hold its weights."""
    model = onnx.load(str(graph), load_external_data=False)
    beside = {ExternalDataInfo(tensor).location for tensor in model.graph.initializer if uses_external_data(tensor)}
    return [graph, *(graph.parent / name for name in sorted(beside))]


def _digest(path: Path) -> str:
    with path.open("rb") as reader:
        return hashlib.file_digest(reader, "sha256").hexdigest()


def _data_digest(batches: Iterable[Tensors]) -> str:
    digest = hashlib.sha256()
    for batch in batches:
        for name, array in batch.items():
            digest.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
            digest.update(array.tobytes())
    return digest.hexdigest()


def _tool(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def carries_quantisation(context: BuildContext) -> bool:
    """Whether the source is an ONNX that brings its own Q/DQ, and so needs no calibration."""
    path = getattr(context.source, "path", None)
    return isinstance(path, Path) and has_qdq(path)


def _keep_quantisation(precision: str, model: ExportedModel, target: Path) -> None:
    """Trained scales are better than any that calibration finds: only the rest is lowered. Beside weights alone that is
    what FP16 means."""
    brought = quantised_in(model.path)
    if precision != brought and (precision, brought) != ("fp16", WEIGHTS):
        raise candidate_failed(precision, f"the model brings its own {brought} quantisation, which is kept",
                               f"write auto or {brought}")
    rewrite(Job(task=LOWER, source=str(model.path), target=str(target), precision="fp16"))


def quantised_in(path: Path) -> str:
    """``int4-weight-only`` by the weights that the graph dequantises, else ``fp8`` or ``int8`` by the zero points of
    its Q/DQ."""
    graph = onnx.load(str(path), load_external_data=False).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    types |= {node.output[0]: attribute.t.data_type for node in graph.node if node.op_type == "Constant"
              for attribute in node.attribute if attribute.name == "value"}
    weights = {types.get(node.input[0]) for node in graph.node if node.op_type == "DequantizeLinear"}
    if weights & {onnx.TensorProto.INT4, onnx.TensorProto.UINT4} and not any(
            node.op_type == "QuantizeLinear" for node in graph.node):
        return WEIGHTS
    zero_points = {types.get(node.input[2]) for node in graph.node
                   if node.op_type == "DequantizeLinear" and len(node.input) > 2}
    return "fp8" if onnx.TensorProto.FLOAT8E4M3FN in zero_points else "int8"


def _half(precision: str, model: ExportedModel, context: BuildContext, target: Path) -> None:
    """The source's own half-precision export where it has one: the framework keeps in FP32 what it would itself.

    Nodes to be kept are named in the FP32 graph, so with those AutoCast rewrites it.
    """
    if context.source is not None and not context.keep_precise:
        try:
            context.source.export_onnx(target, _HALF_OPSET[precision], precision)
        except UserError as error:
            if reason := missing():
                raise candidate_failed(precision, f"{error.message}; {reason}", "write auto or fp32") from error
        else:
            return
    if reason := missing():
        raise candidate_failed(precision, reason, "write auto or fp32")
    context.progress(0.02, f"AutoCast: writing {precision} into the graph")
    rewrite(Job(task=AUTOCAST, source=str(model.path), target=str(target), precision=precision,
                keep=context.keep_precise), _inputs(context), context.time_left())


def _int4_weights(model: ExportedModel, context: BuildContext, target: Path) -> None:
    """Into the graph that FP16 is built from, so that all that is left of it is FP16's."""
    half = typed_graph("fp16", model, context)
    context.progress(0.02, "writing weights of four bits")
    try:
        write_int4_weights(half, target, context.keep_precise)
    except (ValueError, RuntimeError) as error:  # the second: the converter of opsets
        raise candidate_failed(WEIGHTS, brief(error), "write auto or fp16") from error


def _quantised(precision: str, model: ExportedModel, context: BuildContext, target: Path) -> None:
    if (ahead := _begun(precision, context)) and ahead.finish(target, context):
        return
    samples = sum(len(next(iter(batch.values()))) for batch in context.calibration)
    context.progress(0.02, f"ModelOpt: quantising to {precision} with {samples} calibration samples")
    # Before the quantiser, which looks for the same pattern and puts its scales into it.
    source = _simplified(model.path, target.with_name("simplified.onnx"), context)
    rewrite(Job(task=QUANTIZE, source=str(source), target=str(target), precision=precision,
                keep=context.keep_precise), context.calibration, context.time_left())


def _simplified(source: Path, target: Path, context: BuildContext) -> Path:
    from enginewright_builder.engines.trt_attention import simplified  # takes seconds: only where it is used

    return simplified(source, target, lambda why: context.progress(0.02, why))


def _inputs(context: BuildContext) -> Sequence[Tensors]:
    return context.calibration[:1] or ([context.example] if context.example is not None else [])


def _check_types(precision: str, path: Path) -> None:
    """A graph that silently stayed FP32 would pass every test of accuracy, and be no candidate of its own."""
    graph = onnx.load(str(path), load_external_data=False).graph
    wanted = _LOW_TYPES[precision]
    casts = (attribute.i for node in graph.node if node.op_type == "Cast" for attribute in node.attribute
             if attribute.name == "to")
    if wanted not in {*(tensor.data_type for tensor in graph.initializer), *casts}:
        raise candidate_failed(precision, f"nothing in the graph computes in {precision}: every node was kept in FP32",
                               "write auto or fp32")
