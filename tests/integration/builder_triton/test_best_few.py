"""A real tritonserver answers with the best few classes and their scores, where the source answers with all."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import (
    AccuracyRequest,
    BatchingRequest,
    BuildRequest,
    DataRequest,
    EngineRequest,
    Interface,
    PostprocessStep,
    SourceRequest,
    TaskRequest,
)
from enginewright_builder.errors import UserError
from enginewright_builder.load import Channels, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.pipeline import run_build
from enginewright_builder.pod import smoke
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.resolve import resolve
from enginewright_builder.triton.model_config import parse_text
from enginewright_builder.triton.server import TritonServer

pytestmark = [pytest.mark.triton]
WEIGHTS = np.random.default_rng(0).standard_normal((16, 50)).astype(np.float32)
STEPS = (PostprocessStep(output="logits", function="topK", k=5),
         PostprocessStep(output="shares", function="softmax"), PostprocessStep(output="shares", function="topK", k=3))


def classifier(folder: Path) -> Path:
    """Says twice what it thinks of 50 classes."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["features", "weights"], ["logits"]),
         helper.make_node("Neg", ["logits"], ["shares"])],
        "net", [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 50]) for name in ("logits", "shares")],
        [numpy_helper.from_array(WEIGHTS, "weights")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    return folder / "m.onnx"


def test_the_whole_build_of_the_best_few(tmp_path: Path) -> None:
    request = BuildRequest(
        model_name="classes", source=SourceRequest(uri=str(classifier(tmp_path))), store_path=str(tmp_path / "store"),
        interface=Interface(postprocess=STEPS),
        engine=EngineRequest(precision="fp32", fallback="source", max_batch_size=4, build_budget_seconds=900),
        accuracy=AccuracyRequest(tolerance=0.1),
        batching=BatchingRequest(preferred_batch_sizes=(2, 4), max_queue_delay_us=100))
    outcome = run_build(request, tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None
    folder = tmp_path / "store" / outcome.fingerprint
    config = parse_text((folder / "model_repository/model/config.pbtxt").read_text())
    fp32, int32 = 11, 8
    assert [(one.name, list(one.dims), one.data_type) for one in config.output] == [
        ("logits", [5], fp32), ("shares", [3], fp32), ("logits_indices", [5], int32), ("shares_indices", [3], int32)]
    asyncio.run(_served(folder))


async def _served(folder: Path) -> None:
    recorded = json.loads((folder / "smoke.json").read_text())
    async with (TritonServer(folder / "model_repository", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        port = int(server.address.http.rpartition(":")[2])
        assert await asyncio.to_thread(smoke.check, recorded, "model", port, 30.0)
        for seed in range(3):
            features = np.random.default_rng(seed).standard_normal((3, 16)).astype(np.float32)
            answers = decode(await channels.call(encode("model", {"features": features}).payload, 30.0))
            logits = features.astype(np.float64) @ WEIGHTS
            powers = np.exp(-logits)
            for name, scores in (("logits", logits), ("shares", powers / powers.sum(axis=1, keepdims=True))):
                best = np.argsort(-scores, axis=1)[:, :answers[name].shape[1]]
                np.testing.assert_array_equal(answers[f"{name}_indices"], best)
                expected = np.take_along_axis(scores, best, axis=1)
                assert np.linalg.norm(answers[name] - expected) < 0.01 * np.linalg.norm(expected)


SAMPLES = np.random.default_rng(8).standard_normal((400, 16)).astype(np.float32)
RANKED = np.argsort(-(SAMPLES.astype(np.float64) @ WEIGHTS), axis=1)
# Of each sample one of its best eight classes: two in eight are the best one, six in eight among the best five.
LABELS = RANKED[np.arange(400), np.array([0, 0, 1, 2, 3, 4, 6, 7])[np.arange(400) % 8]]


def labelled(folder: Path, metric: str, step: PostprocessStep) -> BuildRequest:
    np.savez(folder / "labelled.npz", features=SAMPLES, label=LABELS)
    return BuildRequest(
        model_name="classes", source=SourceRequest(uri=str(classifier(folder))), store_path=str(folder / "store"),
        interface=Interface(postprocess=(step,)),
        engine=EngineRequest(precision="fp32", fallback="source", max_batch_size=4, build_budget_seconds=900),
        accuracy=AccuracyRequest(tolerance=0.1, evaluation=DataRequest(uri=str(folder / "labelled.npz")),
                                 task=TaskRequest(metric=metric, labels="label", tolerance=0.1, output="logits")),
        batching=BatchingRequest(preferred_batch_sizes=(2, 4), max_queue_delay_us=100))


@pytest.mark.parametrize(("metric", "step", "value"), [
    ("accuracy", PostprocessStep(output="logits", function="topK", k=3), 0.25),
    ("f1-micro", PostprocessStep(output="logits", function="topK", k=3), 0.25),
    ("top5", PostprocessStep(output="logits", function="topK", k=5), 0.75),
    ("accuracy", PostprocessStep(output="logits", function="argMax"), 0.25)],
    ids=["accuracy", "F1", "top five", "accuracy of the best alone"])
async def test_labels_are_held_against_what_the_server_answers(metric: str, step: PostprocessStep, value: float,
                                                               tmp_path: Path) -> None:
    request = labelled(tmp_path, metric, step)
    outcome = await asyncio.to_thread(run_build, request, tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None
    assert outcome.engine is not None
    figure = outcome.engine.task
    assert figure is not None
    assert figure.metric == metric
    assert figure.source == pytest.approx(value)
    assert figure.value == pytest.approx(value)
    folder = tmp_path / "store" / outcome.fingerprint
    output = "logits" if step.function == "argMax" else "logits_indices"
    async with (TritonServer(folder / "model_repository", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        answers = [decode(await channels.call(encode("model", {"features": SAMPLES[start:start + 4]}).payload, 30.0))
                   for start in range(0, len(SAMPLES), 4)]
    served = np.concatenate([one[output] for one in answers])[:, :5 if metric == "top5" else 1]
    assert (served == LABELS[:, None]).any(axis=1).mean() == pytest.approx(value)


@pytest.mark.parametrize(("metric", "told"), [
    ("ndcg", "takes the scores of all classes, and logits_indices has the best 3 classes"),
    ("top5", "looks among the best 5 classes, and logits_indices has 3")])
def test_labels_that_the_best_few_do_not_answer_are_refused_before_a_device_is_used(metric: str, told: str,
                                                                                    tmp_path: Path) -> None:
    request = labelled(tmp_path, metric, PostprocessStep(output="logits", function="topK", k=3))
    with pytest.raises(UserError) as caught:
        resolve(request, tmp_path / "scratch")
    assert (caught.value.reason, caught.value.field) == ("TaskInvalid", "spec.accuracy.task.metric")
    assert told in caught.value.message


@pytest.mark.parametrize(("step", "field"), [
    (PostprocessStep(output="logits", function="topK", k=51), "k"),
    (PostprocessStep(output="features", function="topK", k=5), "output")])
def test_what_cannot_be_picked_is_refused_before_the_build(step: PostprocessStep, field: str, tmp_path: Path) -> None:
    request = BuildRequest(model_name="classes", source=SourceRequest(uri=str(classifier(tmp_path))),
                           interface=Interface(postprocess=(step,)))
    outcome = run_build(request, tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is not None
    assert (outcome.error.reason, outcome.error.field) == (
        "InterfaceInvalid", f"spec.interface.postprocess[0].{field}")
