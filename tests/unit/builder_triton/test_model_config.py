from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.contract import Interface, ServingChoice, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.triton.model_config import (
    BACKENDS,
    DATATYPES,
    ServedModel,
    model_config,
    parse_text,
    to_text,
    warmup_data,
)


def served(
    *specs: TensorSpec, backend: str = "onnxruntime", serving: ServingChoice | None = None, **settings: Any
) -> ServedModel:
    output = TensorSpec(name="y", dtype="float32", shape=("batch", 2))
    return ServedModel(
        name="m",
        triton_backend=backend,
        interface=Interface(inputs=specs, outputs=(output,)),
        serving=serving or ServingChoice(max_batch_size=4),
        **settings,
    )


X = TensorSpec(name="x", dtype="float32", shape=("batch", 3))
SHAPES = st.lists(st.one_of(st.integers(1, 512), st.just("sequence"), st.just("1..512")), max_size=4)
NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF), min_size=1, max_size=20)


@given(
    name=NAMES,
    shape=SHAPES,
    dtype=st.sampled_from(sorted(DATATYPES)),
    backend=st.sampled_from(["onnxruntime", "tensorrt"]),
    batch=st.integers(0, 64),
    delay=st.integers(0, 10_000),
    instances=st.integers(1, 16),
    gpus=st.lists(st.integers(0, 7), unique=True),
)
def test_any_config_survives_its_text(
    name: str, shape: list[int | str], dtype: str, backend: str, batch: int, delay: int, instances: int, gpus: list[int]
) -> None:
    spec = TensorSpec(name=name, dtype=dtype, shape=("batch", *shape))
    model = served(
        spec,
        backend=backend,
        gpus=tuple(gpus),
        parameters={name: name},
        serving=ServingChoice(max_batch_size=batch, max_queue_delay_us=delay, instance_count=instances),
    )
    config = model_config(model)
    text = to_text(config)
    assert parse_text(text) == config
    assert "max_batch_size:" in text


@pytest.mark.parametrize(
    ("model", "reason", "words"),
    [
        (served(TensorSpec(name="x", dtype="complex64", shape=("batch",))), "InterfaceInvalid", "complex64"),
        (
            served(TensorSpec(name="x", dtype="bfloat16", shape=("batch",)), backend="python"),
            "InterfaceInvalid",
            "bfloat16",
        ),
        (served(TensorSpec(name="x", dtype="float32", shape=(1, 3))), "InterfaceInvalid", "fixed at 1"),
        (served(TensorSpec(name="x", dtype="float32", shape=("batch", 0))), "InterfaceInvalid", "size 0"),
        (served(TensorSpec(name="x", dtype="float32")), "InterfaceInvalid", "empty"),
        (served(X, backend="caffe"), "ServingInvalid", "caffe"),
        (served(X, serving=ServingChoice(max_batch_size=4, preferred_batch_sizes=(8,))), "ServingInvalid", "8"),
        (served(X, serving=ServingChoice(max_batch_size=-1)), "ServingInvalid", "at least 0"),
        (served(X, serving=ServingChoice(max_batch_size=4, instance_count=0)), "ServingInvalid", "at least 1"),
        (
            served(TensorSpec(name="x", dtype="float32", shape=("batch", "1..9")), graph_batches=(1,)),
            "ServingInvalid",
            "free dimension",
        ),
        (served(X, warmup={"z": np.ones((1, 3))}), "InterfaceInvalid", "'x'"),
    ],
)
def test_refused_with_the_reason(model: ServedModel, reason: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        model_config(model)
    assert caught.value.reason == reason
    assert caught.value.field
    assert caught.value.remedy


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_of_one_or_none_is_not_gathered(backend: str) -> None:
    for size in (0, 1):
        assert not model_config(served(X, backend=backend, serving=ServingChoice(max_batch_size=size))).HasField(
            "dynamic_batching"
        )


def test_preferred_sizes_only_where_asked() -> None:
    assert not model_config(served(X)).dynamic_batching.preferred_batch_size


def test_warmup_files_hold_one_sample_each_config_entry_names() -> None:
    ids = np.arange(12, dtype=np.int64).reshape(3, 4)
    model = served(TensorSpec(name="ids", dtype="int64", shape=("batch", "1..9")), warmup={"ids": ids})
    config = model_config(model)
    named = {entry.input_data_file for sample in config.model_warmup for entry in sample.inputs.values()}
    data = warmup_data(config, {"ids": ids})
    assert set(data) == named
    assert data["sample-0"] == ids[0].tobytes()
    assert [sample.batch_size for sample in config.model_warmup] == [1, 4]


@pytest.mark.parametrize("size", [0, 4])
def test_inputs_of_like_names_have_files_of_their_own(size: int) -> None:
    inputs = {"a/b": np.ones((3, 1), np.float32), "a_b": np.zeros((3, 1), np.float32)}
    model = ServedModel(
        name="m", triton_backend="onnxruntime", serving=ServingChoice(max_batch_size=size), warmup=inputs,
        interface=Interface(inputs=tuple(TensorSpec(name=name, dtype="float32", shape=("batch" if size else 3, 1))
                                         for name in inputs),
                            outputs=(TensorSpec(name="y", dtype="float32", shape=("batch" if size else 3, 1)),)))
    config = model_config(model)
    data = warmup_data(config, inputs)
    for sample in config.model_warmup:
        for name, array in inputs.items():
            assert data[sample.inputs[name].input_data_file] == (array[0] if size else array).tobytes()


def test_warmup_strings_carry_their_length() -> None:
    model = served(
        TensorSpec(name="t", dtype="string", shape=("batch", 1)), warmup={"t": np.array([["hé"]], dtype=object)}
    )
    assert (
        warmup_data(model_config(model), {"t": np.array([["hé"]], dtype=object)})["sample-0"] == b"\x03\0\0\0h\xc3\xa9"
    )
