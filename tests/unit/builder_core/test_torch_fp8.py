"""Linear layers in FP8: which are taken, what they answer, and that the compiler takes a model with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.models.base import SourceModel, TorchProgram
from enginewright_builder.sources.formats import Located

pytestmark = pytest.mark.torch
WIDE, TOKENS = 256, 5
INTERFACE = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", TOKENS, WIDE)),),
                      outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", TOKENS, 7)),))


def module() -> Any:
    """Two layers that are wide enough, one of them without a bias, and a head that is not."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDE, 4 * WIDE), nn.GELU(), nn.Linear(4 * WIDE, WIDE, bias=False),
                         nn.Linear(WIDE, 7)).eval()


def as_code() -> SourceModel:
    from enginewright_builder.models.torch_base import TorchModel

    return TorchModel(module(), INTERFACE, name="net")


def as_program(folder: Path) -> SourceModel:
    import torch

    from enginewright_builder.models import load_model

    made = torch.export.export(module(), (torch.zeros(3, TOKENS, WIDE),),
                               dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.export.save(made, folder / "m.pt2")
    return load_model(Located(path=folder / "m.pt2", format="exported-program"))


@pytest.fixture(scope="module", params=["code", "exported-program"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SourceModel:
    return as_code() if request.param == "code" else as_program(tmp_path_factory.mktemp("program"))


def of(source: SourceModel, precision: str) -> TorchProgram:
    program = source.torch_program(precision)
    assert program is not None
    return program


def weights(program: TorchProgram) -> dict[str, int]:
    """How many matrices there are of each type that a product with at least ``WIDE`` features reads."""
    found: dict[str, int] = {}
    for name, tensor in program.module.state_dict().items():
        if tensor.dim() == 2 and min(tensor.shape) >= WIDE and "scale" not in name:
            kind = str(tensor.dtype).removeprefix("torch.")
            found[kind] = found.get(kind, 0) + 1
    return found


def test_wide_layers_alone_are_fp8(source: SourceModel) -> None:
    import torch

    program = of(source, "fp8")
    calls = [node.target for node in torch.export.export(program.module, program.args, strict=False).graph.nodes]
    assert calls.count(torch.ops.aten._scaled_mm.default) == 2
    assert calls.count(torch.ops.aten.linear.default) == 1
    assert weights(program)["float8_e4m3fn"] == 2


def test_answers_are_near_the_source(source: SourceModel) -> None:
    import torch

    program = of(source, "fp8")
    inputs = torch.randn(4, TOKENS, WIDE, generator=torch.Generator().manual_seed(1))
    inputs[0, 0] *= 1000.0  # one large row, which must not cost the others their digits
    inputs[1, 1] = 0.0
    with torch.no_grad():
        got, = program.module(inputs)
        expected, = of(source, "fp32").module(inputs)
    assert got.dtype == torch.float32
    near = torch.nn.functional.cosine_similarity(got, expected, dim=-1)
    assert near.min() > 0.995
    assert not torch.equal(got, expected)


def test_the_source_stays_as_it_was(source: SourceModel) -> None:
    of(source, "fp8")
    assert weights(of(source, "fp32")).keys() == {"float32"}


def test_scales_belong_to_rows() -> None:
    import torch

    from enginewright_builder.models.torch_fp8 import quantised

    rows = torch.tensor([[1.0, -448.0], [0.0, 0.0], [3e-3, 1e-3], [1e30, -1.0]])
    kept, scale = quantised(rows)
    assert kept.dtype == torch.float8_e4m3fn
    assert scale.flatten()[0] == 1.0
    assert torch.isfinite(kept.float()).all()
    torch.testing.assert_close(kept.float() * scale, rows, rtol=0.07, atol=1.0)


def test_share_counts_what_would_be_fp8(source: SourceModel) -> None:
    from enginewright_builder.models.torch_fp8 import share

    program = of(source, "fp32").module
    total = sum(one.numel() for one in program.parameters())
    assert share(program) == pytest.approx(2 * 4 * WIDE * WIDE / total)


@pytest.mark.timeout(600)
def test_the_compiler_takes_it(source: SourceModel, tmp_path: Path) -> None:
    import torch

    from enginewright_builder.engines.torch_compile import compile_program, compiler

    if not compiler():
        pytest.skip("no C++ compiler")
    program = of(source, "fp8")
    package = compile_program(program, tmp_path, tmp_path, tf32=False)
    compiled = torch._inductor.aoti_load_package(str(package))
    with torch.no_grad():
        expected, = program.module(*program.args)
    torch.testing.assert_close(compiled(*program.args)[0], expected, rtol=0.1, atol=0.05)
