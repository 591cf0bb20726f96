"""Builds by hand on labelled data with groups: the real program, ONNX Runtime's INT8 and Triton.

The model has two halves. One reads requests from ``de`` and ``fr`` by large weights, the other those from ``lu`` by
weights that INT8 rounds to nothing. So INT8 answers 95 of 100 requests as the source does, and guesses for ``lu``.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    CandidateSummary,
    DataRequest,
    EngineRequest,
    Outcome,
    SourceRequest,
    TaskRequest,
)
from enginewright_builder.hand_over import Handed
from enginewright_builder.pipeline import run_finalists
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.report import read_report
from support.measuring import short_program

pytestmark = pytest.mark.triton
CLASSES, HALF = 4, 32
SHARES = {"de": 900, "fr": 500, "lu": 75, "li": 10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("countries")
    rng = np.random.default_rng(11)
    prototypes = rng.standard_normal((2, CLASSES, HALF)).astype(np.float32)
    weights = np.concatenate([prototypes[0].T, 1e-3 * prototypes[1].T])
    _model(weights, made / "model.onnx")
    countries = np.repeat(list(SHARES), list(SHARES.values()))
    rng.shuffle(countries)
    labels = rng.integers(0, CLASSES, len(countries))
    inputs = np.zeros((len(countries), 2 * HALF), np.float32)
    for row, (country, label) in enumerate(zip(countries, labels, strict=True)):
        half = 1 if country == "lu" else 0
        inputs[row, half * HALF:(half + 1) * HALF] = prototypes[half, label] + 0.3 * rng.standard_normal(HALF)
    np.savez(made / "labelled.npz", x=inputs, label=labels, country=countries)
    np.savez(made / "short.npz", x=inputs, label=labels[:-3])
    return made


def _model(weights: np.ndarray[Any, Any], path: Path) -> None:
    wide = np.eye(2 * HALF, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "first"], ["h"]), helper.make_node("MatMul", ["h", "second"], ["logits"])],
        "countries", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2 * HALF])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(wide, "first"), numpy_helper.from_array(weights, "second")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


def build(folder: Path, output: Path, *options: str) -> tuple[Outcome, list[str]]:
    ended = short_program(
        "--model", folder / "model.onnx", "--evaluation", folder / "labelled.npz", "--tolerance", 0.1,
        "--max-batch-size", 4, "--budget-seconds", 900, "--accelerator", "cpu", "--output", output, "--json", *options)
    *lines, last = ended.stdout.splitlines()
    return Outcome.from_json(last), [json.loads(line)["detail"] for line in lines]


def named(outcome: Outcome, precision: str) -> CandidateSummary:
    return next(one for one in outcome.candidates if one.name == f"onnxruntime {precision}")


LABELS = ("--task-metric", "accuracy", "--task-tolerance", "0.1")


def test_without_labels_and_groups_int8_passes(folder: Path, tmp_path: Path) -> None:
    outcome, notes = build(folder, tmp_path, "--precision", "int8")
    assert any(note.startswith("left country, label of the evaluation data out, which") for note in notes)
    refused = [one for one in outcome.candidates if one.verdict == "AccuracyRefused"]
    assert not refused


def test_int8_that_loses_on_one_group_is_refused_with_its_name_and_fp32_ships(folder: Path, tmp_path: Path) -> None:
    outcome, notes = build(folder, tmp_path, *LABELS, "--group-by", "country")
    assert outcome.ok, outcome.error
    int8 = named(outcome, "int8-dynamic")
    assert int8.verdict == "AccuracyRefused"
    assert int8.accuracy_low is not None
    assert int8.accuracy_low > 0.9, "over all samples it agrees as asked"
    assert int8.reason.startswith("in the group country=lu (75 samples) mean cosine ")
    assert named(outcome, "fp32").verdict in ("Shipped", "Passed")
    assert any("1 of 4 groups by country are too small" in note and "li (10)" in note for note in notes)

    engine = outcome.engine
    assert engine is not None
    assert engine.task is not None
    assert engine.groups is not None
    assert (engine.task.metric, engine.task.source) == ("accuracy", 1.0)
    assert engine.task.loss_high < 0.01
    assert (engine.groups.by, engine.groups.judged, engine.groups.too_small) == ("country", 3, ("li",))
    report = read_report(tmp_path / outcome.fingerprint)
    lu = next(one for one in report.accuracy.groups[int8.name] if one.group == "lu")
    assert lu.task is not None
    assert lu.task.value < 0.6 < lu.task.source
    page = (tmp_path / outcome.fingerprint / "report.html").read_text(encoding="utf-8")
    assert "The gate held in each of 3 groups by country" in page
    assert "On the labels accuracy is 1.0000" in page
    assert "--task-metric accuracy --labels label --task-tolerance 0.1 --group-by country" in page


def test_where_int8_alone_is_asked_for_the_error_names_the_group(folder: Path, tmp_path: Path) -> None:
    outcome, _ = build(folder, tmp_path, *LABELS, "--group-by", "country", "--precision", "int8", "--metric", "top1")
    assert not outcome.ok
    assert outcome.error is not None
    assert outcome.error.reason == "AccuracyNotReached"
    assert "in the group country=lu (75 samples)" in outcome.error.message
    assert named(outcome, "int8-dynamic").verdict in ("AccuracyRefused", "Offered")


@pytest.fixture(scope="module")
def tickets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT that was trained to tell complaints from praise, and labelled texts with classes by name."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    made = tmp_path_factory.mktemp("tickets")
    words = {"complaint": ["late", "broken", "wrong", "cold"], "praise": ["great", "quick", "kind", "perfect"]}
    filler = ["the", "order", "was", "my", "box", "came", "today", "and", "very", "it"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *filler, *words["complaint"], *words["praise"]]
    (made / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    tokenizer = transformers.BertTokenizerFast(str(made / "vocab.txt"))
    config = transformers.BertConfig(vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2,
                                     num_attention_heads=2, intermediate_size=64, max_position_embeddings=32,
                                     id2label={0: "complaint", 1: "praise"}, label2id={"complaint": 0, "praise": 1})
    model = transformers.BertForSequenceClassification(config)
    rng = np.random.default_rng(4)
    lines = [(" ".join(rng.permutation([*rng.choice(filler, rng.integers(4, 9)), rng.choice(words[label])])), label,
              ("web", "app")[int(rng.integers(2))]) for label in rng.choice(list(words), 1200)]
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # of so small products a second one would only wait for the first
    for start in [*range(0, 800, 40)] * 8:
        texts, labels, _ = zip(*lines[start:start + 40], strict=True)
        given = tokenizer(list(texts), padding=True, return_tensors="pt")
        answer = model(**given, labels=torch.tensor([config.label2id[label] for label in labels]))
        optimiser.zero_grad()
        answer.loss.backward()
        optimiser.step()
    torch.set_num_threads(threads)
    model.eval().save_pretrained(made / "model")
    tokenizer.save_pretrained(made / "model")
    (made / "labelled.jsonl").write_text("".join(
        json.dumps({"text": text, "label": label, "channel": channel}) + "\n" for text, label, channel in lines[800:]))
    return made


def test_int8_that_is_as_good_on_labels_and_in_all_groups_passes(tickets: Path, tmp_path: Path) -> None:
    """Texts are sorted by length for batches: labels and groups follow them. The first half of a build is enough."""
    accuracy = AccuracyRequest(tolerance=0.1, evaluation=DataRequest(uri=str(tickets / "labelled.jsonl")),
                               task=TaskRequest(metric="f1-macro", tolerance=0.05), group_by="channel")
    request = BuildRequest(
        model_name="tickets", source=SourceRequest(uri=str(tickets / "model")), accuracy=accuracy,
        engine=EngineRequest(precision="int8", max_batch_size=4, build_budget_seconds=900, fallback="source"),
        store_path=str(tmp_path))
    ended = run_finalists(request, tmp_path / "scratch", Tracker(JsonLines(io.StringIO())), tmp_path / "left")
    assert ended is None, ended
    handed = Handed(tmp_path / "left").document
    int8 = next(one for one in handed.candidates if one.name == "onnxruntime int8-dynamic")
    assert int8.task is not None
    assert int8.task.source > 0.95, "the model has learned it, and labels stand beside their texts"
    assert int8.verdict != "AccuracyRefused", int8.reason
    assert {one.group: one.too_small for one in handed.accuracy.groups[int8.name]} == {"app": False, "web": False}


def test_labels_of_another_length_are_told_before_anything_is_built(folder: Path, tmp_path: Path) -> None:
    outcome, notes = build(folder, tmp_path, *LABELS, "--evaluation", str(folder / "short.npz"))
    assert outcome.error is not None
    assert (outcome.error.reason, outcome.error.field) == ("EvaluationDataInvalid", "--evaluation")
    assert "label: (1482,)" in outcome.error.message
    assert len(notes) == 1
