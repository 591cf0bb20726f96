"""Outputs that engines process: what NumPy makes of the source's answers, the graph and the traced program answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from scipy import special

from enginewright_builder.contract import Interface, PostprocessStep, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.export import export_model, largest_difference
from enginewright_builder.models import load_model
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.ort_session import OrtRunner
from enginewright_builder.postprocess import applied, best_few, finished, without_steps
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Tensors

POOLED = PostprocessStep(output="tokens", function="meanPooling", mask="attention_mask")
UNIT = PostprocessStep(output="tokens", function="l2Normalise")
STEPS = {"softmax": (PostprocessStep(output="scores", function="softmax"),),
         "sigmoid": (PostprocessStep(output="scores", function="sigmoid"),),
         "of each token": (UNIT,), "pooled": (POOLED,), "pooled, of length 1": (POOLED, UNIT),
         "best class": (PostprocessStep(output="scores", function="argMax"),),
         "best of each token": (PostprocessStep(output="tokens", function="argMax"),),
         "best along an axis": (PostprocessStep(output="tokens", function="argMax", axis=1),),
         "best of the pooled": (POOLED, PostprocessStep(output="tokens", function="argMax")),
         "best three": (PostprocessStep(output="scores", function="topK", k=3),),
         "shares of all, the best first": (PostprocessStep(output="scores", function="softmax"),
                                           PostprocessStep(output="scores", function="topK", k=5)),
         "best two of the pooled": (POOLED, PostprocessStep(output="tokens", function="topK", k=2)),
         "of both outputs": (POOLED, PostprocessStep(output="scores", function="softmax"))}
EACH = pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)


def embedding(folder: Path, kind: int = TensorProto.FLOAT, opset: int = 18) -> Path:
    """Vectors of tokens, and scores of the whole."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    rng = np.random.default_rng(0)
    table, weights = rng.standard_normal((50, 8)).astype(dtype), rng.standard_normal((8, 5)).astype(dtype)
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
             helper.make_node("ReduceMax", ["tokens"], ["most"], axes=[1], keepdims=0),
             helper.make_node("MatMul", ["most", "weights"], ["scores"])]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
                       for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("tokens", kind, ["batch", "length", 8]),
         helper.make_tensor_value_info("scores", kind, ["batch", 5])],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(weights, "weights")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), folder / "m.onnx")
    return folder / "m.onnx"


def inputs(batch: int = 3, seed: int = 0) -> Tensors:
    rng = np.random.default_rng(seed)
    mask = (np.arange(9) < rng.integers(1, 10, (batch, 1))).astype(np.int64)
    return {"input_ids": rng.integers(0, 50, (batch, 9)), "attention_mask": mask}


def by_hand(steps: tuple[PostprocessStep, ...], given: Tensors, answers: Tensors) -> dict[str, Any]:
    made = {name: array.astype(np.float64) for name, array in answers.items()}
    for step in steps:
        value = made[step.output]
        if step.function == "softmax":
            value = special.softmax(value, axis=-1)
        elif step.function == "sigmoid":
            value = special.expit(value)
        elif step.function == "meanPooling":
            value = np.stack([one[keep == 1].mean(axis=0) for one, keep in
                              zip(value, given["attention_mask"], strict=True)])
        elif step.function == "argMax":
            axis = step.axis or value.ndim - 1
            value = value.argmax(axis=axis, keepdims=value.ndim == 2).astype(np.int32)
        elif step.function == "topK":
            made[f"{step.output}_indices"] = np.argsort(-value, axis=1, kind="stable")[:, :step.k].astype(np.int32)
            value = -np.sort(-value, axis=1)[:, :step.k]
        else:
            value = value / np.linalg.norm(value, axis=-1, keepdims=True)
        made[step.output] = value
    return made


@EACH
@pytest.mark.parametrize(("kind", "most"), [(TensorProto.FLOAT, 1e-5), (TensorProto.FLOAT16, 2e-3)],
                         ids=["fp32", "fp16"])
def test_the_graph_answers_what_numpy_makes_of_the_source(steps: tuple[PostprocessStep, ...], kind: int, most: float,
                                                          tmp_path: Path) -> None:
    path = embedding(tmp_path, kind, 17)
    plain, model = load_model(locate(path)), load_model(locate(path), Interface(postprocess=steps))
    exported = export_model(model, tmp_path / "export", [inputs(), inputs(1)])
    onnx.checker.check_model(str(exported.path), full_check=True)
    got, expected = OrtRunner(exported.path)(inputs()), by_hand(steps, inputs(), plain.run(inputs()))
    assert [(spec.name, len(spec.shape)) for spec in model.interface.outputs] == [
        (name, value.ndim) for name, value in expected.items()]
    for name, value in expected.items():
        assert largest_difference(value, model.run(inputs())[name]) < most
        assert largest_difference(value, got[name]) < most
        whole = value.dtype == np.int32
        assert got[name].dtype == (np.int32 if whole else helper.tensor_dtype_to_np_dtype(kind))
        assert model.run(inputs())[name].dtype == got[name].dtype
        assert got[name].shape == value.shape


@pytest.fixture(scope="module")
def saved_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 5)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            tokens = self.table(input_ids) * attention_mask.sum().clamp(1, 1)
            return tokens, self.head(tokens.amax(dim=1))

    torch.manual_seed(0)
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    given = tuple(torch.ones((3, 9), dtype=torch.int64) for _ in range(2))
    path = tmp_path_factory.mktemp("program") / "m.pt2"
    torch.export.save(torch.export.export(Net().eval(), given, dynamic_shapes=(free, free)), path)
    return path


@EACH
@pytest.mark.torch
@pytest.mark.parametrize(("precision", "most"), [("fp32", 1e-5), ("bf16", 2e-2)])
def test_the_traced_program_answers_so_too(steps: tuple[PostprocessStep, ...], precision: str, most: float,
                                           saved_program: Path) -> None:
    import torch

    shape = ("batch", "1..16")
    stated = Interface(inputs=tuple(TensorSpec(name=name, dtype="int64", shape=shape) for name in inputs()),
                       outputs=tuple(TensorSpec(name=name, dtype="float32") for name in ("tokens", "scores")),
                       postprocess=steps)
    model = load_model(locate(saved_program), stated)
    program = model.torch_program(precision)
    assert program is not None
    module = torch.export.export(program.module, program.args, dynamic_shapes=program.dynamic_shapes).module()
    with torch.no_grad():
        got = module(*(torch.from_numpy(array) for array in inputs().values()))
    for value, (name, expected) in zip(got, model.run(inputs()).items(), strict=True):
        assert largest_difference(expected, value.numpy()) < most, name


def test_bytes_in_and_shares_out(tmp_path: Path) -> None:
    """Both ends at once."""
    from enginewright_builder.contract import Normalise

    graph = helper.make_graph([helper.make_node("Flatten", ["x"], ["flat"])], "net",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 2, 2])],
                              [helper.make_tensor_value_info("flat", TensorProto.FLOAT, ["batch", 12])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    sent = TensorSpec(name="x", dtype="uint8", shape=("batch", 3, 2, 2),
                      normalise=Normalise(scale=1 / 255, mean=(0.0,), std=(1.0,)))
    model = load_model(locate(tmp_path / "m.onnx"), Interface(
        inputs=(sent,), postprocess=(PostprocessStep(output="flat", function="softmax"),)))
    given = example_inputs(model.interface, 2)
    exported = export_model(model, tmp_path / "export", [given])
    expected = special.softmax(given["x"].reshape(2, 12) / 255, axis=-1)
    np.testing.assert_allclose(OrtRunner(exported.path)(given)["flat"], expected, rtol=1e-4)


KNOWN = Interface(inputs=(TensorSpec(name="attention_mask", dtype="int64", shape=("batch", "1..9")),
                          TensorSpec(name="flag", dtype="int64", shape=("batch",))),
                  outputs=(TensorSpec(name="tokens", dtype="float32", shape=("batch", "n", 8)),
                           TensorSpec(name="scores", dtype="float32", shape=("batch", 5)),
                           TensorSpec(name="class", dtype="int64", shape=("batch", 5)),
                           TensorSpec(name="number", dtype="float32", shape=("batch",))))


@pytest.mark.parametrize(("step", "field", "told"), [
    (PostprocessStep(output="logits", function="softmax"), "output", "no output 'logits'; it answers tokens, scores"),
    (PostprocessStep(output="class", function="softmax"), "output", "is int64"),
    (PostprocessStep(output="number", function="softmax"), "output", "numbers behind it"),
    (PostprocessStep(output="scores", function="meanPooling", mask="attention_mask"), "output", "[batch, tokens"),
    (PostprocessStep(output="scores", function="argMax", axis=2), "axis", "has no dimension 2"),
    (PostprocessStep(output="scores", function="topK"), "k", "picks 0 classes"),
    (PostprocessStep(output="scores", function="topK", k=6), "k", "has 5 classes, of which 6"),
    (PostprocessStep(output="tokens", function="topK", k=2), "output", "topK needs [batch, classes]"),
    (PostprocessStep(output="number", function="topK", k=1), "output", "numbers behind it"),
    (PostprocessStep(output="class", function="topK", k=2), "output", "is int64"),
    (PostprocessStep(output="tokens", function="meanPooling", mask="mask"), "mask", "no input of the model"),
    (PostprocessStep(output="tokens", function="meanPooling", mask="flag"), "mask", "no input of the model"),
])
def test_steps_that_do_not_fit_are_refused_with_the_field(step: PostprocessStep, field: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        finished(KNOWN, (PostprocessStep(output="tokens", function="sigmoid"), step))
    assert (caught.value.reason, caught.value.field) == ("InterfaceInvalid", f"spec.interface.postprocess[1].{field}")
    assert told in caught.value.message


def test_nothing_is_made_of_classes() -> None:
    best = PostprocessStep(output="scores", function="argMax")
    assert finished(KNOWN, (best,)).outputs[1] == TensorSpec(name="scores", dtype="int32", shape=("batch", 1))
    with pytest.raises(UserError, match="is int32"):
        finished(KNOWN, (best, PostprocessStep(output="scores", function="softmax")))


@pytest.mark.parametrize("last", ["softmax", "argMax", "topK"])
def test_nothing_is_made_of_the_best_few(last: Any) -> None:
    few = PostprocessStep(output="scores", function="topK", k=2)
    assert finished(KNOWN, (few,)).outputs[1:2] + finished(KNOWN, (few,)).outputs[-1:] == (
        TensorSpec(name="scores", dtype="float32", shape=("batch", 2)),
        TensorSpec(name="scores_indices", dtype="int32", shape=("batch", 2)))
    with pytest.raises(UserError, match=f"{last} follows topK") as caught:
        finished(KNOWN, (few, PostprocessStep(output="scores", function=last, k=2)))
    assert caught.value.field == "spec.interface.postprocess[1].function"
    with pytest.raises(UserError, match="is int32"):
        finished(KNOWN, (PostprocessStep(output="scores", function="argMax"), few))


def test_a_name_that_is_taken_is_refused() -> None:
    known = Interface(outputs=(TensorSpec(name="a", dtype="float32", shape=("batch", 5)),
                               TensorSpec(name="a_indices", dtype="float32", shape=("batch", 5))))
    with pytest.raises(UserError, match="has an output 'a_indices' already") as caught:
        finished(known, (PostprocessStep(output="a", function="topK", k=2),))
    assert (caught.value.field, caught.value.value) == ("spec.interface.postprocess[0].output", "a")


def test_more_than_there_are_of_a_free_number_of_classes() -> None:
    """Which the source alone shows, before any engine is built."""
    few = PostprocessStep(output="a", function="topK", k=6)
    known = Interface(outputs=(TensorSpec(name="a", dtype="float32", shape=("batch", "classes")),))
    assert finished(known, (few,)).outputs[0].shape == ("batch", 6)
    with pytest.raises(UserError, match="has 5 classes, of which 6") as caught:
        applied((few,), {}, {"a": np.zeros((2, 5), np.float32)})
    assert (caught.value.field, caught.value.remedy) == ("spec.interface.postprocess[0].k", "write at most 5")


TIED = np.array([[1, 3, 3, 0, 3], [2, 2, 2, 2, 2]], np.float32)


def test_the_first_of_equals_comes_first(tmp_path: Path) -> None:
    """In the reference, in ONNX Runtime and, of sorts that are large too, in PyTorch."""
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["a"])], "net",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 5])],
                              [helper.make_tensor_value_info("a", TensorProto.FLOAT, ["batch", 5])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    model = load_model(locate(tmp_path / "m.onnx"), Interface(
        postprocess=(PostprocessStep(output="a", function="topK", k=4),)))
    exported = export_model(model, tmp_path / "export", [{"x": TIED}])
    for answers in (model.run({"x": TIED}), OrtRunner(exported.path)({"x": TIED})):
        np.testing.assert_array_equal(answers["a_indices"], [[1, 2, 4, 0], [0, 1, 2, 3]])
        np.testing.assert_array_equal(answers["a"], [[3, 3, 3, 1], [2, 2, 2, 2]])


@pytest.mark.torch
def test_the_first_of_many_equals_comes_first_in_pytorch() -> None:
    import torch

    from enginewright_builder.models.finished import _best_few

    step = PostprocessStep(output="a", function="topK", k=50)
    values = np.random.default_rng(0).integers(0, 9, (3, 1000)).astype(np.float32)
    for mine, theirs in zip(_best_few(step, torch.from_numpy(values)), best_few(step, values), strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs)


def test_a_graph_too_old_is_refused(tmp_path: Path) -> None:
    model = load_model(locate(embedding(tmp_path, opset=12)), Interface(postprocess=STEPS["softmax"]))
    with pytest.raises(UserError, match="opset 12"):
        model.export_onnx(tmp_path / "out.onnx", 18)


def test_what_is_stated_of_the_source() -> None:
    assert without_steps(None) is None
    assert without_steps(Interface(postprocess=STEPS["softmax"])) is None
    assert without_steps(Interface(inputs=KNOWN.inputs, postprocess=STEPS["softmax"])) == Interface(inputs=KNOWN.inputs)
