"""Texts of clients: what may be asked for, and the tokenizer that serves beside the source's own."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    Interface,
    Padding,
    PostprocessStep,
    Preprocess,
    SourceRequest,
    TensorSpec,
)
from enginewright_builder.data.lengths import load_samples
from enginewright_builder.data.sets import SampleSet
from enginewright_builder.engines.base import Artifact, Joined, Rung
from enginewright_builder.engines.texted import texted
from enginewright_builder.errors import UserError
from enginewright_builder.evidence.lengths import settle
from enginewright_builder.models import load_model
from enginewright_builder.models.folder_tokenizer import FolderTokenizer
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.models.texted import Texted, given, in_tokens
from enginewright_builder.pod.python_model.tokeniser import Tokeniser
from enginewright_builder.resolve import resolve
from enginewright_builder.sources.formats import Located, locate
from enginewright_builder.texts import check_texts, text_input, without_texts
from support.text_models import LIMIT, answers, classifier

TEXT = TensorSpec(name="text", dtype="string", shape=("batch", 1), preprocess=Preprocess(from_source=True))
PAIRS = dataclasses.replace(TEXT, shape=("batch", 2))
SENTENCES = ["", "the nurse waited", "Zürich?", "a key of the city was lost in the rain. " * 9, "\x00 unheard 漢字"]


def rows(*texts: str) -> Any:
    return np.array(texts, np.object_)[:, None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("texts") / "bert")


def load_tokenizer(folder: Path) -> Any:
    import transformers

    library: Any = transformers  # its classes have half of their types
    return library.AutoTokenizer.from_pretrained(folder)


def opened(folder: Path, spec: TensorSpec, workspace: Path, **more: Any) -> Texted:
    source = load_model(locate(folder), Interface(inputs=(spec,), **more), workspace)
    assert isinstance(source, Texted)
    return source


@pytest.mark.parametrize(("shape", "taken"), [
    ((), ("batch", 1)), (("batch",), ("batch", 1)), (("n", 1), ("batch", 1)), (("batch", 2), ("batch", 2)),
    ((4, 1), (4, 1))])
def test_the_shape_that_clients_send(shape: tuple[int | str, ...], taken: tuple[int | str, ...]) -> None:
    spec = text_input(Interface(inputs=(dataclasses.replace(TEXT, shape=shape),)))
    assert spec is not None
    assert spec.shape == taken


def test_strings_that_the_source_takes_are_no_texts_of_ours() -> None:
    interface = Interface(inputs=(dataclasses.replace(TEXT, preprocess=None),))
    assert text_input(interface) is None
    assert without_texts(interface) is interface
    steps = (PostprocessStep(output="logits", function="softmax"),)
    assert without_texts(Interface(inputs=(TEXT,))) is None
    assert without_texts(Interface(inputs=(TEXT,), postprocess=steps)) == Interface(postprocess=steps)


@pytest.mark.parametrize(("inputs", "field", "says"), [
    ((dataclasses.replace(TEXT, preprocess=Preprocess()),), "spec.interface.inputs[text].preprocess",
     "fromSource: true"),
    ((dataclasses.replace(TEXT, preprocess=Preprocess(from_source=True, height=8)),),
     "spec.interface.inputs[text].preprocess", "fromSource: true"),
    ((TEXT, TensorSpec(name="mask", dtype="int64")), "spec.interface.inputs", "text, mask"),
    ((dataclasses.replace(TEXT, shape=("batch", 3)),), "spec.interface.inputs[text].shape", "[batch, 3]"),
    ((dataclasses.replace(TEXT, shape=(8, 1)),), "spec.interface.inputs[text].shape", "[8, 1]"),
    ((TEXT,), "spec.interface.inputs[text].preprocess.fromSource", "save_pretrained"),
])
def test_what_is_refused(inputs: tuple[TensorSpec, ...], field: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        check_texts(Located(path=tmp_path, format="huggingface"), Interface(inputs=inputs))
    error = caught.value
    assert (error.reason, error.field) == ("InterfaceInvalid", field)
    assert says in error.value + error.remedy


def test_how_texts_are_padded_is_not_for_the_user_to_say(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="filled up as the source's own tokenizer does it") as caught:
        check_texts(Located(path=tmp_path, format="huggingface"), Interface(inputs=(TEXT,), padding=Padding(mask="m")))
    assert (caught.value.field, caught.value.value) == ("spec.interface.padding.mask", "m")


def test_other_sources_have_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is onnx, not huggingface") as caught:
        check_texts(Located(path=tmp_path / "m.onnx", format="onnx"), Interface(inputs=(TEXT,)))
    assert "Hugging Face folder with tokenizer.json" in caught.value.remedy


@pytest.mark.torch
def test_a_folder_of_old_files_is_refused_before_it_is_opened(folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    request = BuildRequest(model_name="m", source=SourceRequest(uri=str(tmp_path)), interface=Interface(inputs=(TEXT,)))
    with pytest.raises(UserError, match=r"the source has no tokenizer\.json"):
        resolve(request, tmp_path / "scratch")


@pytest.mark.torch
@pytest.mark.parametrize("settings", [{}, {"padding_side": "left"}, {"truncation_side": "left"},
                                      {"do_lower_case": False}], ids=str)
def test_the_tokenizer_that_serves_makes_what_transformers_makes(settings: dict[str, Any], tmp_path: Path) -> None:
    source = opened(classifier(tmp_path / "bert", **settings), TEXT, tmp_path)
    sent = {"text": rows(*SENTENCES)}
    own, served = source.tokens(sent), Tokeniser(source.tokeniser).arrays(sent["text"])
    assert list(served) == list(own)
    assert own["input_ids"].shape == (len(SENTENCES), LIMIT), "the longest is cut, and all are padded to it"
    for name, array in own.items():
        np.testing.assert_array_equal(served[name], array)
        assert served[name].dtype == np.int64


@pytest.mark.torch
def test_texts_are_padded_to_the_longest_of_their_batch_alone(folder: Path, tmp_path: Path) -> None:
    tokeniser = Tokeniser(opened(folder, TEXT, tmp_path).tokeniser, threads=2)
    assert tokeniser.arrays(rows("the nurse", "the"))["input_ids"].shape == (2, 4)
    assert tokeniser.arrays(rows(""))["input_ids"].shape == (1, 2), "an empty text has its two special tokens"


@pytest.mark.torch
@pytest.mark.parametrize("side", ["left", "right"])
def test_each_text_is_made_token_ids_of_by_itself(side: str, tmp_path: Path) -> None:
    tokeniser = opened(classifier(tmp_path / "bert", padding_side=side), TEXT, tmp_path).serving
    made = tokeniser.rows(rows("the nurse", "the"))
    assert [one["attention_mask"].tolist() for one in made] == [[[1, 1, 1, 1]], [[1, 1, 1]]]
    for one, text in zip(made, ("the nurse", "the"), strict=True):
        np.testing.assert_array_equal(one["input_ids"], tokeniser.arrays(rows(text))["input_ids"])
    mask = tokeniser.padded(made)["attention_mask"].tolist()
    assert mask == [[1, 1, 1, 1], [0, 1, 1, 1] if side == "left" else [1, 1, 1, 0]]
    assert (tokeniser.left, tokeniser.fill) == (side == "left", {"input_ids": 0, "attention_mask": 0,
                                                                 "token_type_ids": 0})


@pytest.mark.torch
def test_a_text_that_is_no_utf_8_is_named(folder: Path, tmp_path: Path) -> None:
    tokeniser = Tokeniser(opened(folder, TEXT, tmp_path).tokeniser)
    assert tokeniser.arrays(rows("Zürich"))["input_ids"].tolist() == tokeniser.arrays(
        np.array([["Zürich".encode()]], np.object_))["input_ids"].tolist()
    with pytest.raises(ValueError, match="text 1 is no UTF-8: invalid start byte at byte 3"):
        tokeniser.arrays(np.array([[b"the"], [b"the\xff"]], np.object_))


def test_a_text_without_any_token_is_named(tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer: Any = Tokenizer(WordLevel({"the": 1, "[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.enable_padding()
    file = tmp_path / "tokeniser.json"
    file.write_text(json.dumps({"input": "text", "makes": ["input_ids"], "tokenizer": json.loads(tokenizer.to_str())}))
    assert Tokeniser(file).arrays(rows("the"))["input_ids"].tolist() == [[1]]
    with pytest.raises(ValueError, match="text 1 has no token"):
        Tokeniser(file).arrays(rows("the", " "))


@pytest.mark.torch
def test_the_source_answers_texts_as_its_authors_use_it(folder: Path, tmp_path: Path) -> None:
    source = opened(folder, TEXT, tmp_path)
    assert source.interface.inputs == (TEXT,)
    found = source.run({"text": rows(*SENTENCES)})["logits"]
    np.testing.assert_allclose(found, answers(folder, SENTENCES), rtol=1e-3, atol=1e-4)
    assert [spec.name for spec in in_tokens(source).interface.inputs] == list(given(source, {"text": rows("a")}))


@pytest.mark.torch
def test_pairs_are_cut_and_joined_as_the_source_has_them(folder: Path, tmp_path: Path) -> None:
    source = opened(folder, PAIRS, tmp_path)
    sent = np.array([[one, other] for one, other in zip(SENTENCES, reversed(SENTENCES), strict=True)], np.object_)
    np.testing.assert_allclose(source.run({"text": sent})["logits"], answers(folder, SENTENCES, SENTENCES[::-1]),
                               rtol=1e-3, atol=1e-4)
    served = Tokeniser(source.tokeniser).arrays(sent)
    for name, array in source.tokens({"text": sent}).items():
        np.testing.assert_array_equal(served[name], array)


@pytest.mark.torch
def test_steps_after_the_source_see_its_own_inputs(folder: Path, tmp_path: Path) -> None:
    source = opened(folder, TEXT, tmp_path, postprocess=(PostprocessStep(output="logits", function="softmax"),))
    found = source.run({"text": rows("the rain", "a key")})["logits"]
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.torch
def test_a_tokenizer_that_only_runs_in_python_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it runs in Python"):
        FolderTokenizer(object(), ("input_ids",), 8).write(tmp_path / "t.json", "text")
    fast = FolderTokenizer(load_tokenizer(folder), ("input_ids", "bbox"), 8)
    with pytest.raises(UserError, match="it makes bbox"):
        fast.write(tmp_path / "t.json", "text")


@pytest.mark.torch
def test_a_tokenizer_that_serves_otherwise_is_refused(folder: Path, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokeniser, "arrays", lambda self, texts: {
        name: np.zeros((len(texts), 3), np.int64) for name in self.makes})
    with pytest.raises(UserError, match="makes other input_ids than transformers does"):
        opened(folder, TEXT, tmp_path)


def test_made_up_texts_are_of_many_lengths_and_the_same_for_a_seed() -> None:
    interface = Interface(inputs=(TEXT,), outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),))
    made = example_inputs(interface, 64)["text"]
    assert made.shape == (64, 1)
    lengths = [len(text.split()) for text in made[:, 0]]
    assert min(lengths) < 6
    assert max(lengths) > 30
    assert made.tolist() == example_inputs(interface, 64)["text"].tolist()
    assert made.tolist() != example_inputs(interface, 64, 1)["text"].tolist()


@pytest.mark.torch
@pytest.mark.parametrize(("spec", "lines", "first"), [
    (TEXT, ['{"text": "the rain"}', '{"text": "a key"}'], [["the rain"]]),
    (dataclasses.replace(TEXT, name="sentence"), ['{"sentence": "the rain"}', '{"sentence": "a key"}'], [["the rain"]]),
    (PAIRS, ['{"text": ["where?", "the city"]}', '{"text": ["who?", "a nurse"]}'], [["where?", "the city"]]),
])
def test_data_are_texts(spec: TensorSpec, lines: list[str], first: Any, folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "evaluation.jsonl"
    data.write_text("\n".join(lines * 8))
    request = BuildRequest(model_name="m", source=SourceRequest(uri=str(folder)), interface=Interface(inputs=(spec,)),
                           accuracy=AccuracyRequest(metric="relative-error", tolerance=0.3,
                                                    evaluation=DataRequest(uri=str(data))))
    with pytest.raises(UserError) as caught:
        resolve(request, tmp_path / "scratch")
    assert caught.value.reason == "EvaluationTooSmall", "two are left, as the others are the same"
    data.write_text("\n".join(lines[0].replace("the", f"the {number}") for number in range(40)))
    resolved = resolve(request, tmp_path / "scratch")
    assert resolved.evaluation is not None
    row = resolved.evaluation.rows[0][spec.name]
    assert row.dtype == np.object_
    assert row.shape == (len(first[0]),)


@pytest.mark.torch
def test_texts_of_an_archive_and_what_is_no_text(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "evaluation.npz"
    np.savez(data, text=np.array([f"the {number}" for number in range(40)]))
    request = BuildRequest(model_name="m", source=SourceRequest(uri=str(folder)), interface=Interface(inputs=(TEXT,)),
                           accuracy=AccuracyRequest(metric="relative-error", tolerance=0.3,
                                                    evaluation=DataRequest(uri=str(data))))
    assert len(resolve(request, tmp_path / "scratch").evaluation or ()) == 40
    np.savez(data, input_ids=np.ones((40, 3), np.int64))
    with pytest.raises(UserError, match="the model takes text"):
        resolve(request, tmp_path / "scratch")


def test_engines_are_made_for_tokens_and_ship_with_the_tokenizer(tmp_path: Path) -> None:
    """Whatever the backends of the server: one of them alone runs a tokenizer."""
    class Inner:
        name = "onnxruntime"

        def build(self, rung: Rung, model: Any, context: Any) -> Artifact:
            assert context.runtime.backends == ("python",)
            return Artifact(rung=rung, files={"model.onnx": tmp_path / "model.onnx"}, triton_backend="python",
                            interface=Interface(), runtime_version="1")

    from enginewright_builder.contract import DeviceRequest, RuntimeRequest
    from enginewright_builder.engines.base import BuildContext

    interface = Interface(inputs=(TEXT,))
    inner: Any = Inner()
    engine, = texted([inner], interface, tmp_path / "tokeniser.json")
    context = BuildContext(device=DeviceRequest(), runtime=RuntimeRequest(backends=("python", "onnxruntime")),
                           max_batch_size=4, calibration=(), workspace=tmp_path, progress=lambda fraction, text: None)
    model: Any = None
    made = engine.build(Rung(backend="onnxruntime", precision="fp32"), model, context)
    assert made.interface == interface
    assert set(made.files) == {"model.onnx", "tokeniser.json"}


@pytest.mark.torch
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_texts_is_tried_on_their_tokens(side: str, tmp_path: Path) -> None:
    source = opened(classifier(tmp_path / "bert", padding_side=side), TEXT, tmp_path)
    told = [" ".join(["rain"] * (1 + place % 7)) for place in range(28)]
    evaluation = SampleSet(batches=[{"text": rows(*told[:16])}, {"text": rows(*told[16:])}], count=28,
                           origin="held-out")
    settled = settle(source, None, evaluation)
    if side == "left":  # BERT's positions begin with the padding then
        assert (settled.joined, settled.samples) == (None, ())
        assert "Requests of different length are not joined: padded, output 'logits' differs" in settled.notes[0]
        return
    found = [source.tokens(one)["attention_mask"].shape[1] for one in settled.samples]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (3, 9), "with two special tokens"
    assert settled.joined == Joined(mask="attention_mask", fill=dict.fromkeys(source.serving.makes, 0.0),
                                    buckets=(6, 9, LIMIT))


@pytest.mark.torch
def test_texts_of_one_length_are_cut_into_parts(folder: Path, tmp_path: Path) -> None:
    source = opened(folder, TEXT, tmp_path)
    alike = SampleSet(batches=[{"text": rows("the rain in the city", "a key of a nurse")}], count=2, origin="held-out")
    assert [str(one["text"][0, 0]).strip() for one in settle(source, None, alike).samples] == [
        "a key", "a key of a", "a key of a nurse"]
    short = SampleSet(batches=[{"text": rows("a")}], count=1, origin="held-out")
    assert settle(source, None, short).notes == (
        "Requests of different length are not joined: all samples are of one length.",)


@pytest.mark.torch
def test_a_load_of_texts_has_the_lengths_of_the_data(folder: Path, tmp_path: Path) -> None:
    source = opened(folder, TEXT, tmp_path)
    told = [" ".join(["rain"] * (1 + place % 20)) for place in range(200)]
    evaluation = SampleSet(batches=[{"text": rows(*told)}], count=200, origin="held-out")
    samples = load_samples(evaluation, "attention_mask", source.tokens)
    found = [len(str(sample["text"][0, 0]).split()) for sample in samples]
    assert (len(found), set(found)) == (64, set(range(1, 21)))
    assert found[0] in (10, 11), "the first has the median length"
