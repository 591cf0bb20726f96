"""A graph that the real ModelOpt quantises in a process beside the builds."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import DeviceRequest, RuntimeRequest
from enginewright_builder.engines.base import BuildContext, ExportedModel, OutOfTimeError, Shelf
from enginewright_builder.engines.graph_ahead import GraphAhead
from enginewright_builder.engines.modelopt_graphs import has_qdq
from enginewright_builder.engines.trt_graphs import begin_graph, typed_graph
from enginewright_builder.models.onnx import load_onnx

pytestmark = pytest.mark.torch
RNG = np.random.default_rng(3)


@pytest.fixture
def model(tmp_path: Path) -> ExportedModel:
    shapes = {"w0": (32, 3, 3, 3), "w1": (64, 32, 3, 3)}
    constants = [numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32) / 10, name)
                 for name, shape in shapes.items()]
    nodes = [helper.make_node("Conv", ["x", "w0"], ["c"], kernel_shape=[3, 3], pads=[1] * 4),
             helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("Conv", ["r", "w1"], ["y"], kernel_shape=[3, 3], pads=[1] * 4)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 16, 16])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64, 16, 16])], constants)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(path))
    return ExportedModel(path=path, interface=load_onnx(path, None).interface, opset=18)


@pytest.fixture
def context(model: ExportedModel, tmp_path: Path) -> BuildContext:
    calibration = [{"x": RNG.standard_normal((8, 3, 16, 16)).astype(np.float32)} for _ in range(2)]
    return BuildContext(device=DeviceRequest(accelerator="gpu"), runtime=RuntimeRequest(), max_batch_size=8,
                        calibration=calibration, workspace=tmp_path / "work", shelf=Shelf(),
                        progress=lambda fraction, detail: None)


def begun(model: ExportedModel, context: BuildContext) -> GraphAhead:
    ahead = begin_graph("int8", model, context)
    assert ahead is not None
    return ahead


def scales(path: Path) -> dict[str, float]:
    graph = onnx.load(str(path)).graph
    return {tensor.name: float(numpy_helper.to_array(tensor).max()) for tensor in graph.initializer
            if tensor.name.endswith("_scale")}


def test_it_is_the_graph_that_is_written_alone_even_if_it_was_stopped_meanwhile(model: ExportedModel,
                                                                                context: BuildContext,
                                                                                tmp_path: Path) -> None:
    ahead = begun(model, context)
    ahead.pause()
    stopped = os.waitid(os.P_PID, ahead.process.pid, os.WSTOPPED)
    assert stopped is not None
    assert stopped.si_status == signal.SIGSTOP
    ahead.resume()
    told: list[str] = []
    taken = typed_graph("int8", model, replace(context, progress=lambda fraction, detail: told.append(detail)))
    assert not any("ModelOpt" in detail for detail in told)
    assert not ahead.running
    alone = typed_graph("int8", model, replace(context, shelf=None, workspace=tmp_path / "alone"))
    kinds = [Counter(node.op_type for node in onnx.load(str(path)).graph.node) for path in (taken, alone)]
    assert kinds[0] == kinds[1]
    assert has_qdq(taken)
    assert scales(taken) == pytest.approx(scales(alone))


def test_one_that_was_killed_is_written_alone(model: ExportedModel, context: BuildContext) -> None:
    ahead = begun(model, context)
    os.killpg(ahead.process.pid, signal.SIGKILL)
    told: list[str] = []
    graph = typed_graph("int8", model, replace(context, progress=lambda fraction, detail: told.append(detail)))
    assert has_qdq(graph)
    assert any("written again, alone: the builder ran out of memory" in detail for detail in told)


def test_one_that_was_cancelled_leaves_no_process_and_harms_nobody(model: ExportedModel, context: BuildContext) -> None:
    ahead = begun(model, context)
    ahead.cancel()
    ahead.cancel()
    assert not ahead.running
    assert not ahead.finish(context.workspace / "anything", context)


def test_without_time_it_is_not_waited_for_and_none_is_written_alone(model: ExportedModel,
                                                                     context: BuildContext) -> None:
    ahead = begun(model, context)
    ahead.pause()
    with pytest.raises(OutOfTimeError):
        typed_graph("int8", model, replace(context, time_left=lambda: 0.0))
    assert ahead.running
    ahead.cancel()
    told: list[str] = []
    with pytest.raises(OutOfTimeError):
        typed_graph("int8", model, replace(context, progress=lambda fraction, detail: told.append(detail),
                                           time_left=lambda: 0.01))
    assert any("ModelOpt" in detail for detail in told)


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
def test_other_precisions_are_no_work_for_it(precision: str, model: ExportedModel, context: BuildContext) -> None:
    assert begin_graph(precision, model, context) is None


def test_nothing_is_begun_twice_without_data_or_for_a_graph_that_is_there(model: ExportedModel,
                                                                          context: BuildContext) -> None:
    assert begin_graph("int8", model, replace(context, calibration=())) is None
    assert begin_graph("int8", model, replace(context, shelf=None)) is None
    assert begin_graph("int8", model, replace(context, keep_precise=("c",))) is None
    ahead = begun(model, context)
    assert begin_graph("int8", model, context) is None
    ahead.cancel()
    there = context.workspace / "tensorrt-fp8" / "model.onnx"
    there.parent.mkdir(parents=True)
    there.touch()
    assert begin_graph("fp8", model, context) is None
