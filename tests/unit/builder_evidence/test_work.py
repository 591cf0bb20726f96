"""Arithmetic and traffic against what is known: by hand for single operators, by PyTorch's own counter for models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.measure.roofline import Work
from enginewright_builder.measure.work import count_work, look

RESNET50_GFLOPS = 8.18  # 4.09 GMAC at 224 × 224, as published


def graph(
    folder: Path, operator: str, shape: list[int | str], *weights: tuple[int, ...], rank: int, **attributes: Any
) -> Path:
    """One operator on input ``x`` and constants."""
    constants = [numpy_helper.from_array(np.ones(size, np.float32), f"w{index}") for index, size in enumerate(weights)]
    node = helper.make_node(operator, ["x", *(constant.name for constant in constants)], ["y"], name="n", **attributes)
    model = helper.make_model(
        helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)], constants),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    ("operator", "shape", "weights", "attributes", "rank", "flops", "weight_elements", "activations"),
    [
        ("MatMul", ["b", 5, 7], [(7, 3)], {}, 3, 2 * 5 * 7 * 3, 21, 35 + 15),
        ("Gemm", ["b", 7], [(3, 7), (3,)], {"transB": 1}, 2, 2 * 7 * 3, 24, 7 + 3),
        ("Conv", ["b", 4, 6, 6], [(8, 4, 3, 3)], {"pads": [1, 1, 1, 1]}, 4, 2 * 8 * 36 * 36, 288, 144 + 288),
        ("Conv", ["b", 4, 6, 6], [(4, 1, 3, 3)], {"pads": [1] * 4, "group": 4}, 4, 2 * 4 * 36 * 9, 36, 288),
        ("ConvTranspose", ["b", 4, 3, 3], [(4, 2, 2, 2)], {"strides": [2, 2]}, 4, 2 * 36 * 8, 32, 36 + 72),
        ("Einsum", ["b", 5, 7], [(7, 3)], {"equation": "bij,jk->bik"}, 3, 2 * 5 * 7 * 3, 21, 35 + 15),
        ("Relu", ["b", 5], [], {}, 2, 0, 0, 0),
    ],
)
def test_single_operators(
    tmp_path: Path, operator: str, shape: list[int | str], weights: list[tuple[int, ...]], attributes: dict[str, Any],
    rank: int, flops: float, weight_elements: int, activations: int,
) -> None:
    model = graph(tmp_path, operator, shape, *weights, rank=rank, **attributes)
    work = count_work(model, {"x": np.ones((1, *(int(size) for size in shape[1:])), np.float32)})
    assert work.flops_at(1) == pytest.approx(flops)
    assert work.flops_at(8) == pytest.approx(8 * flops)
    assert work.bytes_at(1, 4) == pytest.approx(4 * (weight_elements + activations))
    assert work.bytes_at(3, 2) == pytest.approx(2 * (weight_elements + 3 * activations))


def test_a_product_of_two_activations_has_no_weights(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    value = helper.make_tensor_value_info
    body = helper.make_graph([node], "g", [value("x", TensorProto.FLOAT, ["b", 4, 4])],
                             [value("y", TensorProto.FLOAT, ["b", 4, 4])])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    (product,) = count_work(path, {"x": np.ones((1, 4, 4), np.float32)}).products
    assert (product.flops, product.weights, product.activations) == (128, 0, 48)


def exported(model: Any, inputs: tuple[Any, ...], path: Path) -> Work:
    import torch

    names = [f"x{index}" for index in range(len(inputs))]
    batch = torch.export.Dim("batch")
    torch.onnx.export(model, inputs, str(path), input_names=names, dynamo=True, verbose=False, external_data=False,
                      dynamic_shapes=tuple({0: batch} for _ in inputs))
    return count_work(path, {name: value[:1].numpy() for name, value in zip(names, inputs, strict=True)})


def counted_by_pytorch(model: Any, inputs: tuple[Any, ...]) -> float:
    """For the whole batch. Attention is taken apart so that its products are seen."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(*inputs)
    return float(counter.get_total_flops())


@pytest.mark.torch
@pytest.mark.timeout(900)  # an export on a machine that does other things, too
def test_bert_as_pytorch_counts_it(tmp_path: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel

    class Bert(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel(BertConfig(num_hidden_layers=2, vocab_size=1000))

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
            return hidden

    model, inputs = Bert().eval(), (torch.ones(2, 128, dtype=torch.int64), torch.ones(2, 128, dtype=torch.int64))
    work = exported(model, inputs, tmp_path / "bert.onnx")
    assert work.flops_at(2) == pytest.approx(counted_by_pytorch(model, inputs), rel=0.001)
    # 12 such layers make BERT-base, whose 85 million weights in products are published.
    assert sum(product.weights for product in work.products) * 6 == pytest.approx(84.9e6, rel=0.01)


@pytest.mark.torch
@pytest.mark.timeout(900)  # an export on a machine that does other things, too
def test_resnet50_as_published(tmp_path: Path) -> None:
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    class ResNet(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.resnet = ResNetForImageClassification(ResNetConfig.from_dict({"num_labels": 1000}))

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.resnet(pixels).logits
            return logits

    model, inputs = ResNet().eval(), (torch.zeros(2, 3, 224, 224),)
    work = exported(model, inputs, tmp_path / "resnet.onnx")
    assert work.flops_at(1) / 1e9 == pytest.approx(RESNET50_GFLOPS, rel=0.002)
    assert work.flops_at(2) == pytest.approx(counted_by_pytorch(model, inputs), rel=0.001)


@pytest.mark.parametrize(("operator", "shape", "weights", "attributes", "rank", "kind"), [
    ("MatMul", ["b", 64, 64], [(64, 64)], {}, 3, "product"),
    ("Conv", ["b", 16, 8, 8], [(32, 16, 3, 3)], {}, 4, "convolution"),
    ("Conv", ["b", 16, 8, 8], [(16, 1, 3, 3)], {"group": 16}, 4, "depthwise"),
    ("Conv", ["b", 1, 8, 8], [(16, 1, 3, 3)], {}, 4, "convolution"),
    ("Softmax", ["b", 16, 8], [], {}, 3, "rest"),
])
def test_a_look_tells_kinds_of_operators_apart(operator: str, shape: list[int | str], weights: list[tuple[int, ...]],
                                               attributes: dict[str, Any], rank: int, kind: str,
                                               tmp_path: Path) -> None:
    model = graph(tmp_path, operator, shape, *weights, rank=rank, **attributes)
    found = look(model, {"x": np.ones((1, *(int(size) for size in shape[1:])), np.float32)}, 8)
    assert (getattr(found, kind), found.operators) == (1.0, 1)


def test_a_product_of_two_activations_is_attention_and_views_count_for_nothing(tmp_path: Path) -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), helper.make_node("MatMul", ["x", "t"], ["m"]),
             helper.make_node("Shape", ["m"], ["s"]), helper.make_node("Reshape", ["m", "s"], ["y"])]
    model = helper.make_model(helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 32, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    found = look(tmp_path / "model.onnx", {"x": np.ones((1, 32, 64), np.float32)}, 4)
    assert found.attention + found.rest == pytest.approx(1.0)
    assert found.attention > 0.5
    assert found.operators <= 2  # ONNX Runtime may fold the transposition into the product
