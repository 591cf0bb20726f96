"""Steps in the graph are timed apart from the model where that can be measured, and told to be within it where not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import Interface, Normalise, PostprocessStep, Preprocess, TensorSpec
from enginewright_builder.engines.base import Artifact, Member, Rung
from enginewright_builder.evidence.folded import Steps, measure_folded, not_apart, steps_of
from enginewright_builder.measure.layers import Folded
from enginewright_builder.onnx_postprocess import fold_outputs
from enginewright_builder.onnx_preprocess import fold
from enginewright_builder.tensors import Tensors

IMAGE = TensorSpec(name="image", dtype="uint8", shape=("batch", 60, 60, 3), preprocess=Preprocess(height=16, width=16),
                   normalise=Normalise(scale=1 / 255, mean=(0.5,), std=(0.5,), channels="last"))
SCORES = TensorSpec(name="scores", dtype="float32", shape=("batch", 64))
SOFTMAX = PostprocessStep(output="scores", function="softmax")
TEXT = TensorSpec(name="text", dtype="string", shape=("batch", 1), preprocess=Preprocess(from_source=True))
STEPS = Steps(preprocess=("image/preprocess",), postprocess=("scores/postprocess",))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A product of what is left of an image, between a resize and a softmax."""
    weights = np.random.default_rng(0).standard_normal((768, 64)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["image"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["scores"])],
        "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 16, 16])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 64])],
        [numpy_helper.from_array(weights, "w")])
    path = tmp_path_factory.mktemp("folded") / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    interface = Interface(inputs=(IMAGE,), outputs=(SCORES,))
    fold(path, [IMAGE])
    fold_outputs(path, [SOFTMAX], interface)
    return Artifact(rung=Rung(backend="onnxruntime", precision="fp32"), files={"model.onnx": path},
                    triton_backend="python", interface=interface, runtime_version="1")


def calls(*sizes: int) -> dict[int, Tensors]:
    rng = np.random.default_rng(1)
    return {size: {"image": rng.integers(0, 256, (size, 60, 60, 3)).astype(np.uint8)} for size in sizes}


def test_names_of_nodes_are_those_that_were_written(engine: Artifact) -> None:
    assert steps_of(engine.interface, [SOFTMAX, SOFTMAX]) == STEPS
    assert not steps_of(Interface(inputs=(TEXT,)), ()), "a tokenizer is in no graph"
    names = [node.name for node in onnx.load(engine.files["model.onnx"]).graph.node]
    assert sum(name.startswith(STEPS.preprocess) for name in names) > 5
    assert sum(name.startswith(STEPS.postprocess) for name in names) == 1


def test_shares_are_measured_at_each_batch(engine: Artifact) -> None:
    found = measure_folded(engine, STEPS, calls(1, 4), "cpu")
    assert [one.batch for one in found] == [1, 4]
    for one in found:
        assert one.preprocess is not None
        assert one.postprocess is not None
        assert 0 < one.postprocess < one.preprocess + one.postprocess < 1
    assert not_apart(STEPS, [found]) == ()


def test_what_is_in_no_node_is_not_told(engine: Artifact) -> None:
    gone = Steps(preprocess=("image/preprocess",), postprocess=("others/postprocess",))
    found, = measure_folded(engine, gone, calls(1), "cpu")
    assert found.preprocess
    assert found.postprocess is None
    told, = not_apart(gone, [[found]])
    assert "Model compute has the postprocessing in it" in told


@pytest.mark.parametrize(("backend", "accelerator"), [("tensorrt", "gpu"), ("torch", "cpu"), ("onnxruntime", "gpu")])
def test_other_engines_do_not_tell_them_apart(engine: Artifact, backend: str, accelerator: str) -> None:
    other = dataclasses.replace(engine, rung=dataclasses.replace(engine.rung, backend=backend))
    assert measure_folded(other, STEPS, calls(1), accelerator) == ()
    assert len(not_apart(STEPS, [()])) == 2
    assert not_apart(Steps(), [()]) == ()


def test_a_profile_that_fails_costs_no_build(engine: Artifact, tmp_path: Path) -> None:
    broken = dataclasses.replace(engine, files={"model.onnx": tmp_path / "model.onnx"})
    assert measure_folded(broken, STEPS, calls(1), "cpu") == ()


def test_a_batch_is_looked_up_at_the_next_that_was_measured(engine: Artifact) -> None:
    one, four, nine = (Folded(batch=size, preprocess=0.5) for size in (1, 4, 9))
    small, large = (dataclasses.replace(engine, folded=folded) for folded in ((one, four), (nine,)))
    both = dataclasses.replace(engine, members=(Member(up_to=4, artifact=small), Member(up_to=9, artifact=large)))
    assert [small.folded_at(batch) for batch in (0.5, 1, 1.2, 4, 7)] == [one, one, four, four, four]
    assert [both.folded_at(batch) for batch in (1, 4, 4.5)] == [one, four, nine]
    assert engine.folded_at(1) is None
