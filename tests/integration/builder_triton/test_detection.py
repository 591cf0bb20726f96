"""A real tritonserver answers with boxes: of a Hugging Face folder in the pixels of the client's image, as its own
processor makes them; of an ONNX file in YOLO's layout behind non-maximum suppression."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from enginewright_builder.contract import (
    AccuracyRequest,
    BatchingRequest,
    BuildRequest,
    DataRequest,
    EngineRequest,
    Interface,
    SourceRequest,
    TaskRequest,
)
from enginewright_builder.errors import UserError
from enginewright_builder.load import Channels, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.models import finished, load_model
from enginewright_builder.onnx_postprocess import fold_outputs
from enginewright_builder.pipeline import run_build
from enginewright_builder.pod import smoke
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.resolve import resolve
from enginewright_builder.same_boxes import agreements, overlaps
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.server import TritonServer
from support.detectors import FOLDER, PIXELS, SENT, SUPPRESSED, images, rt_detr, yolo, yolos

pytestmark = [pytest.mark.triton]


def request(source: Path, interface: Interface, sent: Tensors, folder: Path) -> BuildRequest:
    np.savez(folder / "images.npz", **sent)
    return BuildRequest(
        model_name="boxes", source=SourceRequest(uri=str(source)), store_path=str(folder / "store"),
        interface=interface,
        engine=EngineRequest(precision="fp32", fallback="source", max_batch_size=4, build_budget_seconds=900),
        accuracy=AccuracyRequest(tolerance=0.1, evaluation=DataRequest(uri=str(folder / "images.npz"))),
        batching=BatchingRequest(preferred_batch_sizes=(2, 4), max_queue_delay_us=100))


async def served(folder: Path, sent: Tensors) -> Tensors:
    """Answers to batches of three, after the smoke test that replicas do."""
    recorded = json.loads((folder / "smoke.json").read_text())
    async with (TritonServer(folder / "model_repository", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        port = int(server.address.http.rpartition(":")[2])
        assert await asyncio.to_thread(smoke.check, recorded, "model", port, 30.0)
        count = len(next(iter(sent.values())))
        calls = [{name: array[start:start + 3] for name, array in sent.items()} for start in range(0, count, 3)]
        parts = [decode(await channels.call(encode("model", call).payload, 30.0)) for call in calls]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "made", "backend"), [
    ("Yolos", yolos, "auto"),
    ("RTDetr", rt_detr, "onnxruntime"),  # which PyTorch compiles for minutes
])
def test_a_folder_is_served_with_the_boxes_of_its_own_processor(kind: str, made: Callable[[Path], Path], backend: str,
                                                                tmp_path: Path) -> None:
    import torch
    import transformers

    source = made(tmp_path / "source")
    asked = request(source, FOLDER, {"pixel_values": images(60, *SENT)}, tmp_path)
    asked = replace(asked, engine=replace(asked.engine, backend=backend))
    outcome = run_build(asked, tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None
    sent = images(9, *SENT, seed=1)
    got = asyncio.run(served(tmp_path / "store" / outcome.fingerprint, {"pixel_values": sent}))
    model: Any = getattr(transformers, f"{kind}ForObjectDetection").from_pretrained(source)
    processor: Any = getattr(transformers, f"{kind}ImageProcessor").from_pretrained(source)
    with torch.no_grad():
        theirs = processor.post_process_object_detection(
            model(**processor(images=list(sent), return_tensors="pt")), threshold=0.15, target_sizes=[SENT] * 9)
    assert sum(len(one["scores"]) for one in theirs) > 9
    for row, one in enumerate(theirs):
        found = got["labels"][row] >= 0
        assert found.sum() == len(one["scores"])
        expected = {name: values.numpy()[None] for name, values in one.items()}
        expected["labels"] = expected["labels"].astype(np.int32)
        assert agreements(expected, {name: got[name][row][found][None] for name in expected})[0] > 0.99


def test_boxes_that_overlap_are_served_once(tmp_path: Path) -> None:
    source = yolo(tmp_path / "yolo.onnx")
    sent = {"images": images(60, PIXELS, PIXELS).transpose(0, 3, 1, 2).astype(np.float32) / 255}
    outcome = run_build(request(source, SUPPRESSED, sent, tmp_path), tmp_path / "scratch",
                        Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None
    some = {"images": sent["images"][:9]}
    got = asyncio.run(served(tmp_path / "store" / outcome.fingerprint, some))
    (raw,) = onnxruntime.InferenceSession(str(source)).run(None, some)
    below = raw[:, 4:].max(axis=1) > 0.2
    assert below.sum() > (got["labels"] >= 0).sum() > 9
    for row in range(9):
        kept = got["labels"][row] >= 0
        assert got["scores"][row][kept][0] == pytest.approx(raw[row, 4:].max(), rel=1e-4)
        for label in np.unique(got["labels"][row][kept]):
            boxes = got["boxes"][row][got["labels"][row] == label]
            assert max((overlaps(box, boxes[place + 1:]).max(initial=0.0) for place, box in enumerate(boxes))) <= 0.5


def scaled(graph: onnx.GraphProto) -> None:
    graph.initializer.append(numpy_helper.from_array(np.array([1.02], np.float32), "sabotage"))
    rename(graph, "boxes")
    graph.node.append(helper.make_node("Mul", ["boxes/right", "sabotage"], ["boxes"]))


def swapped(graph: onnx.GraphProto) -> None:
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int32), "sabotage"))
    rename(graph, "labels")
    graph.node.append(helper.make_node("BitwiseXor", ["labels/right", "sabotage"], ["labels"]))


def rename(graph: onnx.GraphProto, name: str) -> None:
    for node in graph.node:
        node.output[:] = [f"{name}/right" if one == name else one for one in node.output]


@pytest.mark.parametrize("sabotage", [scaled, swapped])
def test_a_graph_with_other_boxes_is_refused(sabotage: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes 2 % larger; labels of neighbours swapped."""
    right = fold_outputs

    def wrong(path: Path, *rest: object) -> None:
        right(path, *rest)  # type: ignore[arg-type]
        model = onnx.load(str(path))
        sabotage(model.graph)  # type: ignore[operator]
        onnx.save(model, str(path))

    monkeypatch.setattr(finished, "fold_outputs", wrong)
    sent = {"images": images(60, PIXELS, PIXELS).transpose(0, 3, 1, 2).astype(np.float32) / 255}
    outcome = run_build(request(yolo(tmp_path / "yolo.onnx"), SUPPRESSED, sent, tmp_path), tmp_path / "scratch",
                        Tracker(JsonLines(io.StringIO())))
    assert outcome.error is not None
    assert outcome.error.reason == "ExportMismatch"


def labelled(source: Path, sent: Tensors, folder: Path, objects: np.ndarray[Any, Any]) -> BuildRequest:
    asked = request(source, SUPPRESSED, {**sent, "objects": objects}, folder)
    task = TaskRequest(metric="map", labels="objects", tolerance=0.1)
    return replace(asked, accuracy=replace(asked.accuracy, task=task))


def some_objects(source: Path, sent: Tensors) -> np.ndarray[Any, Any]:
    """Of each image what the source sees best and second best, one of them moved by a pixel: ``[images, 2, 5]``."""
    model = load_model(locate(source), SUPPRESSED)
    seen = model.run(sent)
    objects = np.concatenate([seen["labels"][:, :2, None], seen["boxes"][:, :2]], axis=-1)
    objects[:, 1, 1:] += 1
    objects[objects[:, :, 0] < 0] = -100
    return np.asarray(objects)


def test_labels_of_objects_are_held_against_what_is_served(tmp_path: Path) -> None:
    source = yolo(tmp_path / "yolo.onnx")
    sent = {"images": images(60, PIXELS, PIXELS).transpose(0, 3, 1, 2).astype(np.float32) / 255}
    outcome = run_build(labelled(source, sent, tmp_path, some_objects(source, sent)), tmp_path / "scratch",
                        Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None
    assert outcome.engine is not None
    figure = outcome.engine.task
    assert figure is not None
    assert figure.metric == "map"
    assert 0.1 < figure.source < 0.99
    assert figure.value == pytest.approx(figure.source, abs=0.01)
    assert figure.loss_high <= 0.1


@pytest.mark.parametrize(("change", "reason"), [(lambda objects: objects[:-1], "EvaluationDataInvalid"),
                                                (lambda objects: objects[:, :, :4], "LabelsInvalid")])
def test_objects_that_do_not_fit_are_refused_before_a_device_is_used(change: Any, reason: str, tmp_path: Path) -> None:
    source = yolo(tmp_path / "yolo.onnx")
    sent = {"images": images(60, PIXELS, PIXELS).transpose(0, 3, 1, 2).astype(np.float32) / 255}
    with pytest.raises(UserError) as caught:
        resolve(labelled(source, sent, tmp_path, change(some_objects(source, sent))), tmp_path / "scratch")
    assert caught.value.reason == reason
    assert caught.value.remedy


def test_a_metric_of_classes_is_refused_of_boxes(tmp_path: Path) -> None:
    source = yolo(tmp_path / "yolo.onnx")
    sent = {"images": images(60, PIXELS, PIXELS).transpose(0, 3, 1, 2).astype(np.float32) / 255}
    asked = request(source, SUPPRESSED, {**sent, "label": np.zeros(60, np.int64)}, tmp_path)
    asked = replace(asked, accuracy=replace(asked.accuracy, task=TaskRequest(metric="accuracy", tolerance=0.1)))
    with pytest.raises(UserError, match="is not of detections") as caught:
        resolve(asked, tmp_path / "scratch")
    assert caught.value.field == "spec.accuracy.task.metric"
