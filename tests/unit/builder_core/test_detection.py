"""Boxes of raw outputs: the graph and PyTorch's program answer what NumPy does, NumPy what Hugging Face's processors
do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.contract import Detection, Interface, PostprocessStep, Preprocess, TensorSpec
from enginewright_builder.detection import Plan, detected, plan
from enginewright_builder.errors import UserError
from enginewright_builder.export import export_model
from enginewright_builder.models import load_model
from enginewright_builder.ort_session import OrtRunner
from enginewright_builder.postprocess import finished
from enginewright_builder.same_boxes import agreements, overlaps
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Tensors
from support.detectors import SENT, images, raw, yolos

RNG = np.random.default_rng(0)
PAIR: dict[str, tuple[int, ...]] = {"logits": (30, 9), "pred_boxes": (30, 4)}
DETR = Detection(boxes="pred_boxes", scoring="softmax", background="last")
DEFORMABLE = Detection(boxes="pred_boxes", scoring="sigmoid", threshold=0.4)
YOLO = Detection(box_unit="pixels", threshold=0.3, nms_threshold=0.5)
SSD = Detection(boxes="pred_boxes", box_format="xyxy", background="first", scoring="softmax", threshold=0.2,
                nms_threshold=0.45)
KINDS: dict[str, tuple[Detection, dict[str, tuple[int, ...]]]] = {
    "DETR": (DETR, PAIR), "Deformable DETR": (DEFORMABLE, PAIR), "YOLO": (YOLO, {"logits": (10, 400)}),
         "SSD": (SSD, PAIR), "RetinaNet": (Detection(boxes="pred_boxes", box_format="xyxy", threshold=0.3,
                                                     nms_threshold=0.5), PAIR)}


def step(how: Detection | None, k: int = 20) -> PostprocessStep:
    return PostprocessStep(output="logits", function="objectDetection", detection=how, k=k)


def raw_answers(how: Detection, outputs: dict[str, tuple[int, ...]], batch: int) -> Tensors:
    """Of boxes that overlap, as trained detectors give them."""
    count = 400 if not how.boxes else 30
    size = 640 if how.box_unit == "pixels" else 1
    boxes = np.concatenate([RNG.uniform(low, high, (batch, count, 2)) for low, high in ((0.2, 0.8), (0.1, 0.4))],
                           axis=-1)
    if how.box_format == "xyxy":
        boxes[..., 2:] += boxes[..., :2]
    scores = RNG.normal(0, 2, (batch, count, 9)) if how.scoring != "none" else RNG.uniform(0, 0.7, (batch, count, 9))
    if not how.boxes:
        joined = np.concatenate([boxes * size, scores[..., :6]], axis=-1)
        return {"logits": joined.transpose(0, 2, 1).astype(np.float32)}
    return {"logits": scores.astype(np.float32), "pred_boxes": boxes.astype(np.float32)}


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_answers_what_numpy_does(kind: str, opset: int, tmp_path: Path) -> None:
    how, outputs = KINDS[kind]
    model = load_model(locate(raw(tmp_path / "m.onnx", outputs, opset)), Interface(postprocess=(step(how),)))
    assert model.interface.outputs == (TensorSpec(name="scores", dtype="float32", shape=("batch", 20)),
                                       TensorSpec(name="labels", dtype="int32", shape=("batch", 20)),
                                       TensorSpec(name="boxes", dtype="float32", shape=("batch", 20, 4)))
    calls = [{f"in_{name}": array for name, array in raw_answers(how, outputs, batch).items()} for batch in (1, 3)]
    exported = export_model(model, tmp_path / "export", calls)
    expected, got = model.run(calls[1]), OrtRunner(exported.path)(calls[1])
    assert agreements(expected, got).min() > 1 - 1e-6
    assert expected["labels"].max() >= 0
    np.testing.assert_array_equal(expected["labels"], got["labels"])
    assert (np.diff(got["scores"], axis=1) <= 0).all()
    if how.background == "first":
        assert (got["labels"][got["labels"] >= 0] >= 1).all()
    nothing = got["labels"] < 0
    assert not got["scores"][nothing].any()
    assert not got["boxes"][nothing].any()


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["DETR", "Deformable DETR"])
def test_pytorch_answers_what_numpy_does(kind: str) -> None:
    import torch

    from enginewright_builder.models import torch_detection

    how, outputs = KINDS[kind]
    answers = raw_answers(how, outputs, 3)
    one = plan(step(how), interface_of(outputs), "")
    got = torch_detection.detected(one, None, {name: torch.from_numpy(array) for name, array in answers.items()})
    assert agreements(detected(one, {}, answers), {name: value.numpy() for name, value in got.items()}).min() > 1 - 1e-6


@pytest.mark.torch
@pytest.mark.parametrize("sizes", [False, True])
@pytest.mark.parametrize(("kind", "scoring"), [
    ("Detr", "softmax"), ("Yolos", "softmax"), ("ConditionalDetr", "sigmoid"), ("DeformableDetr", "sigmoid"),
    ("RTDetr", "sigmoid")])
def test_numpy_answers_what_the_source_s_own_processor_does(kind: str, scoring: str, sizes: bool,
                                                            tmp_path: Path) -> None:
    import transformers

    from enginewright_builder.models.hf_detection import of_folder

    getattr(transformers, f"{kind}ImageProcessor")().save_pretrained(tmp_path)
    asked = Detection(from_source=True, threshold=0.3, target_sizes="image" if sizes else "")
    told, decode = of_folder(tmp_path, step(asked), "spec")
    how = told.detection
    assert how is not None
    assert (how.scoring, how.background, how.boxes, how.threshold) == (
        scoring, "last" if scoring == "softmax" else "none", "pred_boxes", 0.3)
    one = plan(told, interface_of(PAIR), "")
    answers, sent = raw_answers(DETR, PAIR, 4), {"image": np.zeros((4, 3, 480, 640), np.float32)}
    theirs, mine = decode(one, sent, answers), detected(one, sent, answers)
    assert agreements(theirs, mine).min() > 1 - 1e-5
    assert (theirs["labels"] >= 0).sum() == (mine["labels"] >= 0).sum() > 20
    assert bool(mine["boxes"].max() > 100) is sizes


def interface_of(outputs: dict[str, tuple[int, ...]]) -> Interface:
    return Interface(inputs=(TensorSpec(name="image", dtype="float32", shape=("batch", 3, "64..640", "64..640")),),
                     outputs=tuple(TensorSpec(name=name, dtype="float32", shape=("batch", *shape))
                                   for name, shape in outputs.items()))


def test_the_better_of_two_that_overlap_stays() -> None:
    """By hand: two of one class on one place, one of another class there, one far away."""
    boxes = np.array([[[0, 0, 10, 10], [1, 0, 11, 10], [0, 0, 10, 10], [50, 50, 60, 60]]], np.float32)
    scores = np.array([[[0.6, 0], [0.9, 0], [0, 0.8], [0.5, 0]]], np.float32)
    assert overlaps(boxes[0, 0], boxes[0, 1:2])[0] == pytest.approx(9 / 11)
    one = Plan(output="logits", k=4, classes=2, how=Detection(boxes="pred_boxes", box_format="xyxy", threshold=0.05,
                                                               nms_threshold=0.8))
    answers = {"logits": scores, "pred_boxes": boxes}
    found = detected(one, {}, answers)
    np.testing.assert_array_equal(found["labels"], [[0, 1, 0, -1]])
    np.testing.assert_allclose(found["scores"], [[0.9, 0.8, 0.5, 0]])
    np.testing.assert_array_equal(found["boxes"][0, 0], [1, 0, 11, 10])
    lax = Plan(output="logits", k=4, classes=2, how=Detection(boxes="pred_boxes", box_format="xyxy", threshold=0.05,
                                                               nms_threshold=0.82))
    np.testing.assert_allclose(detected(lax, {}, answers)["scores"], [[0.9, 0.8, 0.6, 0.5]])


@pytest.mark.torch
def test_a_folder_s_boxes_are_in_the_pixels_of_what_clients_send(tmp_path: Path) -> None:
    """The reference is the processor's own answer; graph and program agree with it."""
    import torch
    import transformers

    taken = TensorSpec(name="pixel_values", dtype="uint8", shape=("batch", *SENT, 3),
                       preprocess=Preprocess(from_source=True))
    model = load_model(locate(yolos(tmp_path / "m")), Interface(inputs=(taken,), postprocess=(
        step(Detection(from_source=True, threshold=0.15, target_sizes="pixel_values"), k=0),)))
    assert [spec.name for spec in model.interface.outputs] == ["scores", "labels", "boxes"]
    sent = {"pixel_values": images(3, *SENT)}
    exported = export_model(model, tmp_path / "export", [sent])
    expected, got = model.run(sent), OrtRunner(exported.path)(sent)
    assert agreements(expected, got).min() > 0.999
    program = model.torch_program("fp32")
    assert program is not None
    answers = dict(zip([spec.name for spec in model.interface.outputs],
                       [value.detach().numpy() for value in program.module(torch.from_numpy(sent["pixel_values"]))],
                       strict=True))
    assert agreements(expected, answers).min() > 0.999
    own: Any = transformers.YolosForObjectDetection.from_pretrained(tmp_path / "m")
    processor: Any = transformers.YolosImageProcessor.from_pretrained(tmp_path / "m")
    with torch.no_grad():
        theirs = processor.post_process_object_detection(
            own(**processor(images=list(sent["pixel_values"]), return_tensors="pt")), threshold=0.15,
            target_sizes=[SENT] * 3)
    for row, one in enumerate(theirs):
        count = len(one["scores"])
        order = one["scores"].argsort(descending=True)
        assert count == (expected["labels"][row] >= 0).sum() > 0
        np.testing.assert_allclose(got["scores"][row, :count], one["scores"][order], atol=1e-4)
        np.testing.assert_allclose(got["boxes"][row, :count], one["boxes"][order], atol=0.2)


KNOWN = Interface(
    inputs=(TensorSpec(name="image", dtype="float32", shape=("batch", 3, 64, 64)),
            TensorSpec(name="cut", dtype="uint8", shape=("batch", 96, 96, 3),
                       preprocess=Preprocess(shortest_edge=64, crop_height=64, crop_width=64)),
            TensorSpec(name="ids", dtype="int64", shape=("batch", "1..9"))),
    outputs=(TensorSpec(name="logits", dtype="float32", shape=("batch", 30, 9)),
             TensorSpec(name="pred_boxes", dtype="float32", shape=("batch", 30, 4)),
             TensorSpec(name="few", dtype="float32", shape=("batch", 20, 4)),
             TensorSpec(name="labels", dtype="int64", shape=("batch", 30)),
             TensorSpec(name="free", dtype="float32", shape=("batch", "n", "classes"))))
WITHOUT_LABELS = Interface(inputs=KNOWN.inputs, outputs=tuple(one for one in KNOWN.outputs if one.name != "labels"))


@pytest.mark.parametrize(("how", "changed", "field", "told"), [
    (None, {}, "detection", "needs to know what the outputs mean"),
    (DETR, {"output": "scores"}, "output", "has no output 'scores'"),
    (DETR, {"k": 31}, "k", "of which 31 detections cannot be made"),
    (Detection(boxes="corners"), {}, "detection.boxes", "has no output 'corners'"),
    (Detection(boxes="few"), {}, "detection.boxes", r"'few' is \[batch, 20, 4\]"),
    (DETR, {"output": "free"}, "output", "fixed number of classes"),
    (Detection(boxes="pred_boxes", nms_threshold=0.5), {}, "detection.threshold", "held against every other"),
    (Detection(boxes="pred_boxes", target_sizes="ids"), {}, "detection.targetSizes", "no input of images"),
    (Detection(boxes="pred_boxes", target_sizes="cut"), {}, "detection.targetSizes", "are cut"),
    (Detection(boxes="pred_boxes", target_sizes="image", box_unit="pixels"), {}, "detection.targetSizes",
     "in pixels of 'image' as they are")])
def test_what_cannot_be_described_is_refused(how: Detection | None, changed: dict[str, Any], field: str,
                                             told: str) -> None:
    one = PostprocessStep(**{"output": "logits", "function": "objectDetection", "detection": how, **changed})
    with pytest.raises(UserError, match=told) as caught:
        finished(WITHOUT_LABELS, (one,))
    assert caught.value.reason == "InterfaceInvalid"
    assert caught.value.field == f"spec.interface.postprocess[0].{field}"
    assert caught.value.remedy


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(UserError, match="a tensor 'labels' already"):
        finished(KNOWN, (step(DETR),))


@pytest.mark.parametrize("other", ["logits", "pred_boxes", "scores"])
def test_another_step_of_these_outputs_is_refused(other: str) -> None:
    for steps in ((step(DETR), PostprocessStep(output=other, function="softmax")),
                  (PostprocessStep(output=other, function="softmax"), step(DETR))):
        with pytest.raises(UserError):
            finished(WITHOUT_LABELS, steps)


@pytest.mark.torch
def test_a_processor_that_makes_no_boxes_is_refused(tmp_path: Path) -> None:
    import transformers

    from enginewright_builder.models.hf_detection import of_folder

    transformers.ViTImageProcessor().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"ViTImageProcessor\w* makes no boxes") as caught:
        of_folder(tmp_path, step(Detection(from_source=True)), "spec.x")
    assert (caught.value.reason, caught.value.field) == ("InterfaceInvalid", "spec.x")


def test_a_source_without_a_processor_says_nothing_of_boxes(tmp_path: Path) -> None:
    asked = step(Detection(from_source=True))
    with pytest.raises(UserError, match="has no processor") as caught:
        load_model(locate(raw(tmp_path / "m.onnx", PAIR)), Interface(postprocess=(asked,)))
    assert caught.value.field == "spec.interface.postprocess[0].detection.fromSource"
