"""Masks are found where they are made and left unquantised where they are added; other constants stay as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.engines.modelopt_masks import LARGEST, clip_masks

LOWEST = float(np.finfo(np.float32).min)


def graph(constant: Any) -> onnx.ModelProto:
    """``scores + where(mask, 0, constant)``, and beside it a residual addition that no mask reaches."""
    nodes = [helper.make_node("Where", ["mask", "zero", "low"], ["m"], name="where"),
             helper.make_node("Unsqueeze", ["m", "axis"], ["u"], name="unsqueeze"),
             helper.make_node("Add", ["x", "u"], ["s"], name="masked"),
             helper.make_node("Softmax", ["s"], ["p"], name="softmax"),
             helper.make_node("Add", ["p", "x"], ["y"], name="residual")]
    made = helper.make_graph(
        nodes, "mask", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, 4]),
                        helper.make_tensor_value_info("mask", TensorProto.BOOL, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4, 4])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in
         {"zero": np.float32(0), "low": constant, "axis": np.array([1])}.items()])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


def constant(model: onnx.ModelProto, name: str) -> Any:
    return next(numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == name)


@pytest.mark.parametrize("low", [LOWEST, -np.inf, -1e9, -65505.0])
@pytest.mark.parametrize("shape", [(), (1,), (4,)])
def test_what_fp16_cannot_hold_is_clipped_and_its_addition_named(low: float, shape: tuple[int, ...]) -> None:
    model = graph(np.full(shape, low, np.float32))
    assert clip_masks(model) == ("masked",)
    clipped = constant(model, "low")
    assert clipped.dtype == np.float32
    np.testing.assert_array_equal(clipped, np.full(shape, -LARGEST, np.float32))
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("low", [np.float32(-10000), np.float32(-65504), np.float32(np.nan)])
def test_what_fp16_holds_stays(low: Any) -> None:
    model = graph(low)
    before = model.SerializeToString()
    assert clip_masks(model) == ()
    assert model.SerializeToString() == before


def test_the_clipped_mask_still_masks_in_fp16() -> None:
    scores = np.array([100.0, -100.0], np.float16)
    masked = scores + np.float16(-LARGEST)
    assert np.isfinite(masked).all()
    assert np.exp(masked.astype(np.float64) - 100.0).max() == 0.0
    assert np.isfinite(np.float16(-LARGEST) + np.float16(-LARGEST))
