"""ONNX graphs in which inputs have become constants, and what these decide is decided: the branches of an ``If`` that
are never taken are gone, so that engines see the graph that runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import numpy_helper

from enginewright_builder.models.onnx_tidy import MOST_BYTES, save
from enginewright_builder.ort_session import ort
from enginewright_builder.tensors import Array

# Since this version of the format a constant need not be among the inputs, as one that callers may replace.
_CONSTANTS_ALONE = 4
_QUIET = 3


def with_constants(path: Path, values: Mapping[str, Array], folder: Path) -> Path:
    """A graph in ``folder`` that has ``values`` in the place of these inputs."""
    model = onnx.load(str(path))
    constants = {*values, *(tensor.name for tensor in model.graph.initializer)}
    left = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(left)
    model.ir_version = max(model.ir_version, _CONSTANTS_ALONE)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
    made = folder / f"{path.stem}.constant.onnx"
    save(model, made)
    return made


def decided(path: Path, folder: Path) -> Path:
    """``path``, or a graph in ``folder`` without what its constants rule out. ONNX Runtime would do the same whenever
    it opens the graph; other engines, and what quantises, would not."""
    model = onnx.load(str(path))
    if model.ByteSize() > MOST_BYTES or not any(node.op_type == "If" for node in model.graph.node):
        return path
    made, options = folder / f"{path.stem}.decided.onnx", ort.SessionOptions()
    options.log_severity_level = _QUIET
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(made)
    try:
        ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception:  # ONNX Runtime's own classes: the loader opens the graph next, and says what is wrong with it
        return path
    _without_foreign_domains(made)
    return made


def _without_foreign_domains(path: Path) -> None:
    """ONNX Runtime names every set of operators that it knows, which other readers of the file may not."""
    model = onnx.load(str(path))
    used = {node.domain for node in _nodes(model.graph)} | {""}
    kept = [one for one in model.opset_import if one.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    save(model, path)


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    inner = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return [*graph.node, *(node for one in inner for node in _nodes(one))]
