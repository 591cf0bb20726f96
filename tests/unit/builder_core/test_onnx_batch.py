"""What an ONNX graph takes in one call: several samples, or what its shapes say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.data.files import SampleFile, check_against
from enginewright_builder.data.sets import sample_set, synthetic_set
from enginewright_builder.errors import UserError, classify
from enginewright_builder.export import export_model
from enginewright_builder.models import load_model
from enginewright_builder.models.base import SourceModel
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Array
from support.inputs import graphs

CALL = TensorSpec(name="x", dtype="float32", shape=(4, 16))
SINGLE = Interface(inputs=(CALL,), outputs=(TensorSpec(name="y", dtype="float32", shape=(4, 8)),))


def loaded(model: onnx.ModelProto, folder: Path, *inputs: TensorSpec) -> SourceModel:
    onnx.save(model, folder / "model.onnx")
    return load_model(locate(folder / "model.onnx"), Interface(inputs=inputs) if inputs else None, folder / "work")


@pytest.mark.parametrize(("make", "why"), [
    (lambda: graphs.product([16], [8]), "not every input and output has the batch in front (x [16], y [8])"),
    (graphs.scalar_beside_batch, "threshold [1]"), (graphs.voice, "state [2, batch, 8]"),
    (graphs.scalar_answer, "output 'total' has the shape [1] for 3 samples"),
    (graphs.time_first, "its answers depend on what else is in the batch"),
    (lambda: graphs.frozen_together(4), "is frozen to a batch of 4: its answers depend"),
    (lambda: graphs.frozen_together(1), "is frozen to a batch of 1: its answers depend"),
])
def test_whole_calls_say_why(make: Callable[[], onnx.ModelProto], why: str, tmp_path: Path) -> None:
    model = loaded(make(), tmp_path)
    note, = model.notes
    assert why in note
    assert "the server joins no requests" in note
    samples = example_inputs(model.interface, 5)
    assert {len(array) for array in (*samples.values(), *model.run(samples).values())} == {5}
    exported = export_model(model, tmp_path / "export", [samples])
    assert exported.interface == model.interface


def test_short_memory_is_not_blamed_on_the_model(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="Failed to allocate memory") as raised:
        loaded(graphs.boundless(), tmp_path)
    assert classify(raised.value).reason == "OutOfMemory"


@pytest.mark.parametrize("make", [graphs.minus_one, lambda: graphs.frozen_shapes(1), lambda: graphs.frozen_shapes(4),
                                  lambda: graphs.frozen_reshape(1), lambda: graphs.frozen_reshape(4), graphs.masked,
                                  graphs.bert_like, graphs.looped])
def test_batches(make: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    model = loaded(make(), tmp_path)
    assert model.notes == ()
    assert {spec.shape[0] for spec in (*model.interface.inputs, *model.interface.outputs)} == {"batch"}
    export_model(model, tmp_path / "export", [example_inputs(model.interface, size) for size in (1, 3, 8)])


def test_a_frozen_batch_is_freed_only_where_answers_stay(tmp_path: Path) -> None:
    """A Reshape that mixes samples answers something at any batch."""
    mixing = graphs.model([graphs.node("Reshape", "x target", "r"), graphs.node("MatMul", "r w", "y")],
                          [graphs.value("x", graphs.F32, [4, 4, 4])], [graphs.value("y", graphs.F32, [4, 2])],
                          {"target": np.array([4, 16]), "w": graphs.matrix(16, 2)})
    flipped = graphs.model([graphs.node("Transpose", "x", "t", perm=[1, 0, 2]), *mixing.graph.node[1:]],
                           [graphs.value("x", graphs.F32, [4, 4, 4])], [graphs.value("y", graphs.F32, [4, 4, 2])],
                           {"w": graphs.matrix(4, 2)})
    flipped.graph.node[1].input[0] = "t"
    assert loaded(mixing, tmp_path).notes == ()
    assert "frozen to a batch of 4" in loaded(flipped, tmp_path).notes[0]


def test_sizes_of_one_name_are_one_size(tmp_path: Path) -> None:
    """Of whole calls what is called like a batch is 1, and what has one name elsewhere is alike."""
    model = loaded(graphs.voice(), tmp_path)
    made = synthetic_set(model, 3).batches[0]
    assert {name: array.shape for name, array in made.items()} == {"sound": (3, 1, 32), "state": (3, 2, 1, 8),
                                                                   "sr": (3, 1)}


def test_the_user_fixes_sizes_that_are_free(tmp_path: Path) -> None:
    model = loaded(graphs.voice(), tmp_path, TensorSpec(name="sound", dtype="float32", shape=(5, 32)),
                   TensorSpec(name="state", dtype="float32", shape=(2, 5, 8)), TensorSpec(name="sr", dtype="int64"))
    assert example_inputs(model.interface, 1)["state"].shape == (1, 2, 5, 8)


def test_sizes_that_do_not_go_together_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fails on made-up inputs of its own shapes") as caught:
        loaded(graphs.voice(), tmp_path, TensorSpec(name="sound", dtype="float32", shape=(5, 32)),
               TensorSpec(name="state", dtype="float32", shape=(2, 4, 8)), TensorSpec(name="sr", dtype="int64"))
    assert (caught.value.reason, caught.value.field) == ("InterfaceInvalid", "spec.interface.inputs")


def test_a_batch_that_is_free_is_not_fixed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fixed size 1 in front") as caught:
        loaded(graphs.product(["N", 16], ["N", 8]), tmp_path, TensorSpec(name="x", dtype="float32", shape=(1, 16)))
    assert "write it as batch" in caught.value.remedy


@pytest.mark.parametrize(("rows", "calls"), [(9, 2), (4, 1)])
def test_samples_are_put_into_calls_of_a_frozen_batch(rows: int, calls: int) -> None:
    """The last ones are left out where they fill no call."""
    every = np.arange(rows * 16, dtype=np.float32).reshape(rows, 16)
    found = check_against(SampleFile(rows=tuple({"x": row} for row in every)), SINGLE)
    assert [row["x"].tolist() for row in found.rows] == [every[4 * call:4 * call + 4].tolist()
                                                         for call in range(calls)]


def test_whole_calls_are_taken_as_they_are() -> None:
    rows = tuple({"x": np.full((4, 16), place, np.float32)} for place in range(3))
    assert [row["x"][0, 0] for row in check_against(SampleFile(rows=rows), SINGLE).rows] == [0, 1, 2]


def test_too_few_samples_for_a_call() -> None:
    with pytest.raises(UserError, match="holds 3 samples, and one call of the model takes 4") as caught:
        check_against(SampleFile(rows=({"x": np.zeros(16, np.float32)},) * 3), SINGLE)
    assert caught.value.field == "spec.accuracy.evaluation.uri"


def test_samples_of_different_shape_make_no_call() -> None:
    rows = tuple({"x": np.zeros(16 + place, np.float32)} for place in range(4))
    with pytest.raises(UserError, match="cannot be put into one call"):
        check_against(SampleFile(rows=rows), SINGLE)


@pytest.mark.parametrize(("shape", "given"), [((1, 16), (16,)), ((1,), ()), (("rows", 16), (16,))])
def test_a_single_row_may_be_left_out_of_a_call(shape: tuple[int | str, ...], given: tuple[int, ...]) -> None:
    interface = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=shape),))
    found: Array = check_against(SampleFile(rows=({"x": np.zeros(given, np.float32)},)), interface).rows[0]["x"]
    assert found.shape == (1, *given)


def of_one_row() -> onnx.ModelProto:
    """As LightGBM's converter declares its classes, however many there are."""
    made = graphs.trees()
    made.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    return made


@pytest.mark.parametrize("make", [graphs.trees, of_one_row])
def test_maps_of_classifiers_are_tensors_and_one_row_is_no_batch(make: Callable[[], onnx.ModelProto], tmp_path: Path
                                                                 ) -> None:
    model = loaded(make(), tmp_path)
    assert [(spec.name, spec.shape) for spec in model.interface.outputs] == [
        ("label", ("batch",)), ("probability", ("batch", 3))]
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    answers = model.run({"x": x})
    label, maps = ort.InferenceSession(str(tmp_path / "model.onnx")).run(None, {"x": x})
    np.testing.assert_array_equal(answers["label"], label)
    np.testing.assert_allclose(answers["probability"], [list(one.values()) for one in maps], rtol=1e-6)
    assert "in the order 0, 1, 2" in model.notes[-1]


def test_outputs_that_are_not_listed_are_left_out(tmp_path: Path) -> None:
    onnx.save(graphs.trees(names=("bad", "fair", "good")), tmp_path / "model.onnx")
    source = locate(tmp_path / "model.onnx")
    with pytest.raises(UserError, match="'label' is of type string") as raised:
        load_model(source, None, tmp_path / "work")
    assert "list the outputs that are served in spec.interface.outputs" in raised.value.remedy
    for name, told in (("probability", ""), ("scores", "has no output 'scores'; it gives label, probability")):
        stated = Interface(outputs=(TensorSpec(name=name, dtype="float32"),))
        if told:
            with pytest.raises(UserError, match=told):
                load_model(source, stated, tmp_path / "work")
        else:
            model = load_model(source, stated, tmp_path / "work")
            assert [spec.name for spec in model.interface.outputs] == ["probability"]
            assert "in the order bad, fair, good" in model.notes[-1]


def test_what_no_answer_needs_is_left_out_with_it(tmp_path: Path) -> None:
    made = graphs.model(
        [graphs.node("MatMul", "x w", "y"), graphs.node("MatMul", "x v", "z")],
        [graphs.value("x", graphs.F32, ["batch", 16])],
        [graphs.value(name, graphs.F32, ["batch", 8]) for name in "yz"],
        {"w": graphs.matrix(16, 8), "v": graphs.matrix(16, 8)})
    onnx.save(made, tmp_path / "model.onnx")
    stated = Interface(outputs=(TensorSpec(name="y", dtype="float32"),))
    model = load_model(locate(tmp_path / "model.onnx"), stated, tmp_path / "work")
    model.export_onnx(tmp_path / "export.onnx", 18)
    graph = onnx.load(tmp_path / "export.onnx").graph
    assert ([one.name for one in graph.initializer], len(graph.node)) == (["w"], 1)


@pytest.mark.parametrize("batch", ["batch", 4])
def test_a_graph_with_chance_in_it_is_refused(batch: int | str, tmp_path: Path) -> None:
    chance = graphs.model([graphs.node("RandomNormalLike", "x", "n"), graphs.node("Add", "x n", "y")],
                          [graphs.value("x", graphs.F32, [batch, 16])], [graphs.value("y", graphs.F32, [batch, 16])])
    with pytest.raises(UserError, match="answers the same call in another way each time: output 'y'") as raised:
        loaded(chance, tmp_path)
    assert (raised.value.reason, raised.value.value) == ("UnsupportedModel", "y")
    assert "export it for inference" in raised.value.remedy


def test_texts_need_no_locale_of_the_machine(tmp_path: Path) -> None:
    small = onnx.helper.make_node("StringNormalizer", ["word"], ["small"], case_change_action="LOWER")
    known = onnx.helper.make_node("LabelEncoder", ["small"], ["y"], domain="ai.onnx.ml", keys_strings=["zürich"],
                                  values_floats=[1.0], default_float=0.0)
    made = graphs.model([small, known], [graphs.value("word", graphs.STRING, ["batch"])],
                        [graphs.value("y", graphs.F32, ["batch"])], domains=["ai.onnx.ml"])
    made.opset_import[1].version = 3
    model = loaded(made, tmp_path)
    assert model.run({"word": np.array(["ZÜRICH", "Bern"], np.object_)})["y"].tolist() == [1.0, 0.0]


def test_results_that_differ_in_number_are_refused(tmp_path: Path) -> None:
    model = loaded(graphs.found_places(), tmp_path)
    with pytest.raises(UserError, match="another shape from request to request") as caught:
        model.run(example_inputs(model.interface, 8))
    assert (caught.value.reason, caught.value.value) == ("UnsupportedModel", "places")


def test_frozen_rows_are_frozen_together(tmp_path: Path) -> None:
    """Single samples in the file, calls before the gate."""
    model = loaded(graphs.frozen_together(4), tmp_path)
    rows = tuple({"x": np.full(16, place, np.float32)} for place in range(16))
    samples = sample_set(SampleFile(rows=rows), model)
    assert (samples.count, samples.typical["x"].shape) == (4, (4, 4, 16))
