"""Small detectors: YOLOS with random weights as a Hugging Face folder, and ONNX files of the shapes that exports of
YOLO and SSD have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import Detection, Interface, PostprocessStep, Preprocess, TensorSpec

# What YOLOS resizes images of ``SENT`` to: half of each side, whose pixels every program rounds alike.
SIDES, SENT = (64, 96), (128, 192)
# Boxes of ``yolo``, and its classes.
ANCHORS, CLASSES, PIXELS = 40, 6, 64
# How clients of ``yolos`` and of ``yolo`` are to get boxes.
FOLDER = Interface(
    inputs=(TensorSpec(name="pixel_values", dtype="uint8", shape=("batch", *SENT, 3),
                       preprocess=Preprocess(from_source=True)),),
    postprocess=(PostprocessStep(output="logits", function="objectDetection", detection=Detection(
        from_source=True, threshold=0.15, target_sizes="pixel_values")),))
SUPPRESSED = Interface(postprocess=(PostprocessStep(
    output="output0", function="objectDetection", k=10,
    detection=Detection(box_unit="pixels", threshold=0.2, nms_threshold=0.5)),))


def yolos(folder: Path, **settings: Any) -> Path:
    """With its own processor. Heads are made such that boxes and classes differ from image to image."""
    import torch
    import transformers

    torch.manual_seed(0)
    settings_of: Any = transformers.YolosConfig  # it takes what its bases take, which its types leave out
    model: Any = transformers.YolosForObjectDetection(settings_of(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=list(SIDES),
        patch_size=16, num_detection_tokens=12, num_labels=5, initializer_range=0.2))
    with torch.no_grad():
        for head in (model.class_labels_classifier, model.bbox_predictor):
            head.layers[-1].weight.normal_(0, 0.3)
    model.save_pretrained(folder)
    transformers.YolosImageProcessor(**{"size": {"height": SIDES[0], "width": SIDES[1]}, "do_pad": False, **settings}
                                     ).save_pretrained(folder)
    return folder


def rt_detr(folder: Path, version: str = "", **settings: Any) -> Path:
    """With its own processor. ``version`` is empty or ``V2``. As transformers makes it the scores of all places are
    alike, so that it is chance which of them the model picks: weights are drawn such that they differ."""
    import torch
    import transformers

    backbone = transformers.RTDetrResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1] * 4, layer_type="basic",
        out_features=["stage2", "stage3", "stage4"])
    torch.manual_seed(0)
    model: Any = getattr(transformers, f"RTDetr{version}ForObjectDetection")(
        getattr(transformers, f"RTDetr{version}Config")(
            backbone_config=backbone, encoder_in_channels=[32, 48, 64], encoder_hidden_dim=32, d_model=32,
            encoder_ffn_dim=64, decoder_ffn_dim=64, decoder_layers=2, encoder_attention_heads=2,
            decoder_attention_heads=2, decoder_in_channels=[32] * 3, num_queries=12, num_labels=5, decoder_n_points=2,
            image_size=list(SIDES)))
    for parameter in model.parameters():
        with torch.no_grad():
            if parameter.dim() > 1:
                parameter.normal_(0, min(0.5, 1.2 / parameter[0].numel() ** 0.5))
            else:
                parameter.uniform_(-0.1, 0.1) if parameter.abs().max() == 0 else parameter.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    transformers.RTDetrImageProcessor(**{"size": {"height": SIDES[0], "width": SIDES[1]}, **settings}
                                      ).save_pretrained(folder)
    return folder


def raw(path: Path, outputs: Mapping[str, tuple[int, ...]], opset: int = 18) -> Path:
    """An ONNX file that answers what it is sent: ``in_NAME`` becomes ``NAME``."""
    sent, answered = ([helper.make_tensor_value_info(f"{prefix}{name}", TensorProto.FLOAT, ["batch", *shape])
                       for name, shape in outputs.items()] for prefix in ("in_", ""))
    graph = helper.make_graph([helper.make_node("Identity", [f"in_{name}"], [name]) for name in outputs], "raw", sent,
                              answered)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def yolo(path: Path) -> Path:
    """Sees squares of 64 × 64 pixels: ``[batch, 4 + classes, anchors]``, centres and sizes in pixels, many of one
    place."""
    random = np.random.default_rng(1)
    features = random.normal(0, 1, (3 * 16, ANCHORS * (4 + CLASSES))).astype(np.float32)
    places = np.concatenate([np.repeat(random.uniform(16, 48, (2, ANCHORS // 4)), 4, axis=1) +
                             random.normal(0, 0.4, (2, ANCHORS)), random.uniform(14, 18, (2, ANCHORS))])
    lean = np.concatenate([np.full((4, ANCHORS), 0.3), np.full((CLASSES, ANCHORS), 3.0)])[None].astype(np.float32)
    shift = np.concatenate([places, np.full((CLASSES, ANCHORS), -2.0)])[None].astype(np.float32)
    constants = {"features": features / 4, "lean": lean, "shift": shift, "half": np.array([0.5], np.float32),
                 "flat": np.array([0, -1], np.int64), "rows": np.array([0, 4 + CLASSES, ANCHORS], np.int64),
                 "start": np.array([0], np.int64), "four": np.array([4], np.int64), "end": np.array([99], np.int64),
                 "along": np.array([1], np.int64)}
    nodes: list[tuple[str, list[str], str, dict[str, Any]]] = [
             ("AveragePool", ["images"], "pooled", {"kernel_shape": [16, 16], "strides": [16, 16]}),
             ("Sub", ["pooled", "half"], "centred", {}), ("Reshape", ["centred", "flat"], "row", {}),
             ("MatMul", ["row", "features"], "told", {}), ("Reshape", ["told", "rows"], "table", {}),
             ("Mul", ["table", "lean"], "leant", {}), ("Add", ["leant", "shift"], "moved", {}),
             ("Slice", ["moved", "start", "four", "along"], "boxes", {}),
             ("Slice", ["moved", "four", "end", "along"], "logits", {}), ("Sigmoid", ["logits"], "scores", {}),
             ("Concat", ["boxes", "scores"], "output0", {"axis": 1})]
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, [output], **given) for kind, inputs, output, given in nodes], "yolo",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, PIXELS, PIXELS])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["batch", 4 + CLASSES, ANCHORS])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def images(count: int, height: int, width: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Bytes, ``[count, height, width, 3]``: blocks of one colour, as large as what detectors here look at."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (count, -(-height // 32), -(-width // 32), 3), dtype=np.uint8)
    return blocks.repeat(32, axis=1).repeat(32, axis=2)[:, :height, :width]
