"""That tests share what PyTorch's exporter knows of operators changes nothing for the next export."""

from __future__ import annotations

from typing import Any

import pytest

from support.exporter import remember_operators

pytestmark = pytest.mark.torch


def test_what_one_export_adds_is_not_in_anothers() -> None:
    import torch
    from torch.onnx._internal.exporter import _registration

    remember_operators()
    registries: list[Any] = [_registration.ONNXRegistry.from_torchlib(opset_version=18) for _ in range(2)]
    add = torch.ops.aten.add.Tensor
    before = [one.onnx_function for one in registries[1].get_decomps(add)]
    assert before
    registries[0].register_op(add, lambda one, other: one)
    assert len(registries[0].get_decomps(add)) == len(before) + 1
    assert [one.onnx_function for one in registries[1].get_decomps(add)] == before
    assert registries[0].opset_version == registries[1].opset_version == 18
    module: Any = _registration
    assert module.remembered.cache_info().hits, "it is made once"
