"""Operators that PyTorch's exporter to ONNX fails on by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.export import export_model
from enginewright_builder.models.synthetic import example_inputs

pytestmark = pytest.mark.torch


def test_numbers_less_tensors(tmp_path: Path) -> None:
    """Fractions and whole numbers, less whole numbers and fractions."""
    import torch

    from enginewright_builder.models.torch_base import TorchModel

    class Less(torch.nn.Module):
        def forward(self, x: Any, mask: Any) -> Any:
            return (x * (1.0 - mask), (1 - mask) * x, 2.5 - x, torch.rsub(mask, 3, alpha=2),
                    torch.rsub(mask, 0.5, alpha=2))

    inputs = (TensorSpec(name="x", dtype="float32", shape=("batch", 8)),
              TensorSpec(name="mask", dtype="int64", shape=("batch", 8)))
    outputs = tuple(TensorSpec(name=f"y{place}", dtype="int64" if place == 3 else "float32", shape=("batch", 8))
                    for place in range(5))
    model = TorchModel(Less(), Interface(inputs=inputs, outputs=outputs), name="m")
    checks = [example_inputs(model.interface, batch, seed=batch) for batch in (1, 5)]
    assert [array.dtype.name for array in model.run(checks[0]).values()] == [spec.dtype for spec in outputs]
    export_model(model, tmp_path, checks)  # raises where the answers differ


def test_what_guards_a_division_is_no_zero(tmp_path: Path) -> None:
    """Rows of zeros, as padding is, and a factor that is nearly 1."""
    import numpy as np
    import torch

    from enginewright_builder.models.torch_base import TorchModel

    class Guarded(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            size = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-8)
            return x * size, (x * 1.000004 - x) * 1e6, x / (x.abs() + 1e-12)

    outputs = tuple(TensorSpec(name=name, dtype="float32", shape=("batch", 8)) for name in ("norm", "near", "sign"))
    model = TorchModel(Guarded(), Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 8)),),
                                            outputs=outputs), name="m")
    export_model(model, tmp_path, [{"x": np.zeros((2, 8), np.float32)}, {"x": np.ones((3, 8), np.float32)}])


def test_numbers_floor_divided_by_tensors(tmp_path: Path) -> None:
    import torch

    from enginewright_builder.models.torch_base import TorchModel

    class Divided(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            whole = torch.where(x > 0, 3, -3)
            return 7.0 // (x + 10), x // 0.5, x.int() // 2, 7 // whole, -7 // whole, whole // 2

    outputs = tuple(TensorSpec(name=f"y{place}", dtype=kind, shape=("batch", 8))
                    for place, kind in enumerate(("float32", "float32", "int32", "int64", "int64", "int64")))
    model = TorchModel(Divided(), Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 8)),),
                                            outputs=outputs), name="m")
    export_model(model, tmp_path, [example_inputs(model.interface, 5)])  # raises where the answers differ
