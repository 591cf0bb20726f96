"""config.pbtxt of every backend and setting, as text that people review and as a message that parses back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from enginewright_builder.contract import Interface, Preprocess, ServingChoice, TensorSpec
from enginewright_builder.triton.model_config import ServedModel, model_config, parse_text, to_text

HERE = Path(__file__).parent
TEXT = Interface(
    inputs=(
        TensorSpec(name="input_ids", dtype="int64", shape=("batch", "1..512")),
        TensorSpec(name="attention_mask", dtype="int64", shape=("batch", "1..512")),
    ),
    outputs=(TensorSpec(name="sentence_embedding", dtype="float32", shape=("batch", 384)),),
)
IMAGE = Interface(
    inputs=(TensorSpec(name="image", dtype="float16", shape=("batch", 3, 224, 224)),),
    outputs=(
        TensorSpec(name="logits", dtype="float16", shape=("batch", 1000)),
        TensorSpec(name="score", dtype="float32", shape=("batch",)),
    ),
)
WARMUP = {"input_ids": np.ones((2, 16), np.int64), "attention_mask": np.ones((2, 16), np.int64)}

CASES = {
    "python-cpu": ServedModel(
        name="minilm",
        triton_backend="python",
        interface=TEXT,
        warmup=WARMUP,
        serving=ServingChoice(max_batch_size=32, max_queue_delay_us=500, instance_count=2),
        parameters={"threads": "1", "model_file": "model.onnx"},
    ),
    "python-texts": ServedModel(
        name="minilm",
        triton_backend="python",
        interface=Interface(
            inputs=(TensorSpec(name="text", dtype="string", shape=("batch", 1),
                               preprocess=Preprocess(from_source=True)),),
            outputs=TEXT.outputs),
        warmup={"text": np.array([["a text"]], np.object_)},
        serving=ServingChoice(max_batch_size=32),
        parameters={"threads": "1"},
    ),
    "python-lengths": ServedModel(
        name="minilm",
        triton_backend="python",
        interface=TEXT,
        serving=ServingChoice(max_batch_size=32),
        parameters={"threads": "2"},
        ragged=frozenset({"input_ids", "attention_mask"}),
    ),
    "onnxruntime-gpu": ServedModel(
        name="minilm",
        triton_backend="onnxruntime",
        interface=TEXT,
        gpus=(0, 1),
        default_model_filename="model.onnx",
        serving=ServingChoice(max_batch_size=16, preferred_batch_sizes=(4, 8, 16)),
    ),
    "onnxruntime-unbatched": ServedModel(
        name="minilm",
        triton_backend="onnxruntime",
        interface=TEXT,
        default_model_filename="model.onnx",
        warmup=WARMUP,
        serving=ServingChoice(max_batch_size=0),
    ),
    "batch-of-one": ServedModel(
        name="minilm",
        triton_backend="onnxruntime",
        interface=TEXT,
        default_model_filename="model.onnx",
        serving=ServingChoice(max_batch_size=1, max_queue_delay_us=500),
    ),
    "tensorrt-graphs": ServedModel(
        name="resnet",
        triton_backend="tensorrt",
        interface=IMAGE,
        gpus=(0,),
        profiles=(0, 2),
        graph_batches=(1, 8),
        default_model_filename="model.plan",
        serving=ServingChoice(max_batch_size=8, preferred_batch_sizes=(8,), max_queue_delay_us=100, instance_count=2),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_config_as_reviewed(name: str) -> None:
    golden, text = HERE / f"{name}.pbtxt", to_text(model_config(CASES[name]))
    if os.environ.get("ENGINEWRIGHT_UPDATE_GOLDENS"):
        golden.write_text(text)
    assert text == golden.read_text(), "look at the change, then run: make golden"


@pytest.mark.parametrize("name", CASES)
def test_golden_parses_back_to_the_message(name: str) -> None:
    assert parse_text((HERE / f"{name}.pbtxt").read_text()) == model_config(CASES[name])


def test_no_golden_without_its_case() -> None:
    assert {path.stem for path in HERE.glob("*.pbtxt")} == set(CASES)


def test_zero_batch_is_written_out() -> None:
    assert (HERE / "onnxruntime-unbatched.pbtxt").read_text().startswith("max_batch_size: 0\n")
