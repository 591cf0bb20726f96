"""Attention as PyTorch really exports it, rewritten, judged by ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

HEADS, TOKENS, WIDTH = 2, 6, 8
MASKS = ("none", "rows", "added", "causal")
# Of the largest answer: FP16 rounds once more or once less where the scale moves.
TOLERANCES = {"float32": 1e-5, "float16": 4e-3}


def simplify_attention(source: Path, target: Path) -> bool:
    from enginewright_builder.engines import trt_attention  # seconds: not while tests are collected

    return trt_attention.simplify_attention(source, target)


def exported(mask: str, dtype: str, folder: Path) -> Path:
    import torch

    class Attention(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
            added = torch.where(kept, 0.0, -2.0).to(q.dtype)
            ways: dict[str, dict[str, Any]] = {"none": {}, "rows": {"attn_mask": kept}, "added": {"attn_mask": added},
                                               "causal": {"is_causal": True}}
            given = ways[mask]
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **given) + 0 * kept.sum()

    path = folder / "exported.onnx"
    tensors = tuple(torch.from_numpy(array) for array in inputs(dtype, 2).values())
    batch = torch.export.Dim.DYNAMIC
    torch.onnx.export(Attention().eval(), tensors, str(path), input_names=["q", "k", "v", "kept"],
                      output_names=["y"], opset_version=18, dynamo=True, external_data=False, verbose=False,
                      dynamic_shapes=({0: batch}, {0: batch}, {0: batch}, {0: batch}))
    return path


def inputs(dtype: str, batch: int) -> dict[str, Any]:
    draw = np.random.default_rng(3)
    kept = draw.random((batch, 1, TOKENS, TOKENS)) < 0.6
    kept[0, :, 1] = False  # a row that the mask covers whole
    shape = (batch, HEADS, TOKENS, WIDTH)
    return {**{name: draw.standard_normal(shape).astype(dtype) for name in "qkv"}, "kept": kept}


def answers(path: Path, given: Mapping[str, Any]) -> Any:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = {one.name for one in session.get_inputs()}
    return session.run(None, {name: array for name, array in given.items() if name in wanted})[0]


def nodes(path: Path) -> list[onnx.NodeProto]:
    return list(onnx.load(str(path)).graph.node)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("mask", MASKS)
def test_pytorchs_attention_becomes_tensorrts_and_answers_the_same(mask: str, dtype: str, tmp_path: Path) -> None:
    source, target = exported(mask, dtype, tmp_path), tmp_path / "simple.onnx"
    simplify_attention(source, target)
    onnx.checker.check_model(str(target))
    for batch in (1, 3):
        given = inputs(dtype, batch)
        expected, got = answers(source, given), answers(target, given)
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(got, expected, atol=TOLERANCES[dtype] * float(np.abs(expected).max()), rtol=0)
    made = {output: node for node in nodes(target) for output in node.output}
    weighed = next(node for node in made.values() if node.op_type == "MatMul" and made[node.input[0]].op_type
                   == "Softmax")
    scores = next(node for node in made.values() if node.op_type == "MatMul" and node is not weighed)
    assert made[scores.input[0]].op_type == "Mul"
    assert made[scores.input[1]].op_type == "Transpose"
    assert {weighed.name, scores.name} <= {node.name for node in nodes(source) if node.op_type == "MatMul"}


@pytest.mark.torch
def test_what_is_rewritten_may_replace_its_source(tmp_path: Path) -> None:
    source = exported("rows", "float32", tmp_path)
    given = inputs("float32", 2)
    expected, before = answers(source, given), len(nodes(source))
    simplify_attention(source, source)
    assert len(nodes(source)) < before
    np.testing.assert_allclose(answers(source, given), expected, atol=1e-5)


def product(folder: Path, *, first: float, second: float, after: str) -> Path:
    """``after((q · first) @ (k · second))`` with matrices of 4 × 4."""
    made = [helper.make_node("Mul", ["q", "first"], ["a"]), helper.make_node("Mul", ["k", "second"], ["b"]),
            helper.make_node("MatMul", ["a", "b"], ["c"], name="scores"), helper.make_node(after, ["c"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 4]) for name in "qky"]
    constants = [numpy_helper.from_array(np.array(value, np.float32), name)
                 for name, value in (("first", first), ("second", second))]
    path = folder / "product.onnx"
    onnx.save(helper.make_model(helper.make_graph(made, "test", values[:2], values[2:], constants), ir_version=9,
                                opset_imports=[helper.make_opsetid("", 18)]), str(path))
    return path


@pytest.mark.parametrize(("first", "second", "after", "scaled"), [
    (0.5, 0.5, "Softmax", 1), (0.5, 0.25, "Softmax", 2), (0.5, 0.5, "Relu", 2)],
    ids=["attention", "two-scales", "no-attention"])
def test_only_scores_that_are_scaled_by_one_root_are_scaled_on_the_query(first: float, second: float, after: str,
                                                                         scaled: int, tmp_path: Path) -> None:
    source, target = product(tmp_path, first=first, second=second, after=after), tmp_path / "simple.onnx"
    assert simplify_attention(source, target) == (scaled == 1)
    target = target if target.exists() else source
    assert sum(node.op_type == "Mul" for node in nodes(target)) == scaled
    draw = np.random.default_rng(1)
    given = {name: draw.standard_normal((1, 4, 4)).astype(np.float32) for name in "qk"}
    np.testing.assert_allclose(answers(target, given), answers(source, given), atol=1e-6)


def test_a_constant_of_the_users_keeps_its_name(tmp_path: Path) -> None:
    source, target = product(tmp_path, first=0.5, second=0.5, after="Softmax"), tmp_path / "simple.onnx"
    model = onnx.load(str(source))
    model.graph.initializer.append(numpy_helper.from_array(np.array(7, np.float32), "c_scale"))
    model.graph.node[-1].output[0] = "soft"
    model.graph.node.append(helper.make_node("Mul", ["soft", "c_scale"], ["y"]))
    onnx.save(model, str(source))
    assert simplify_attention(source, target)
    given = {name: np.eye(4, dtype=np.float32)[None] for name in "qk"}
    np.testing.assert_allclose(answers(target, given), answers(source, given), atol=1e-6)


def test_sparse_constants_which_onnx_ir_would_drop_leave_a_graph_as_it_is(tmp_path: Path) -> None:
    source, target = product(tmp_path, first=0.5, second=0.5, after="Softmax"), tmp_path / "simple.onnx"
    model = onnx.load(str(source))
    values = helper.make_tensor("rare", TensorProto.FLOAT, [1], [1.0])
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, helper.make_tensor("rare_places", TensorProto.INT64, [1], [0]), [4]))
    onnx.save(model, str(source))
    assert not simplify_attention(source, target)
    assert not target.exists()


def test_weights_beside_the_graph_are_taken_along(tmp_path: Path) -> None:
    source, target = product(tmp_path, first=0.5, second=0.5, after="Softmax"), tmp_path / "made" / "simple.onnx"
    model = onnx.load(str(source))
    onnx.save(model, str(source), save_as_external_data=True, location="weights.bin", size_threshold=0)
    target.parent.mkdir()
    simplify_attention(source, target)
    (tmp_path / "weights.bin").unlink()
    given = {name: np.eye(4, dtype=np.float32)[None] for name in "qk"}
    assert answers(target, given).shape == (1, 4, 4)
