"""Which layout compiled PyTorch gets, asked of the real compiler as for a GPU: on a CPU with oneDNN it always wants
NHWC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from enginewright_builder.models.base import TorchProgram

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from enginewright_builder.engines.torch_layout import arranged, prefers_channels_last, turned  # noqa: E402

pytestmark = pytest.mark.torch
IMAGES = (3, 64, 16, 16)


class Answering(nn.Module):
    """The inner module's answer as a tuple of one, as sources give it."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Any) -> Any:
        return (self.inner(*inputs),)


class Passing(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Any) -> Any:
        return self.inner(*inputs)


class WithTables(nn.Module):
    """What has as many dimensions as an image, or more, and is no weight of a convolution."""

    grid: Any

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.positions = convolution(), nn.Parameter(torch.randn(1, 256, 16, 16))
        self.register_buffer("grid", torch.ones(1, 1, 4, 4, 2))

    def forward(self, image: Any) -> Any:
        return self.convolution(image).flatten(2) + self.positions.view(1, 256, 256) + self.grid.sum()


@pytest.fixture
def as_for_a_gpu() -> Iterator[None]:
    with torch.backends.mkldnn.flags(enabled=False):
        yield


def program(inner: Any, shape: tuple[int, ...] = IMAGES) -> TorchProgram:
    return TorchProgram(module=Answering(inner).eval(), args=(torch.randn(shape),),
                        dynamic_shapes={"inputs": ({0: torch.export.Dim.DYNAMIC},)})


def convolution(channels: int = 64, groups: int = 1) -> Any:
    return nn.Conv2d(channels, 256, 3, padding=1, groups=groups)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.usefixtures("as_for_a_gpu")
@pytest.mark.parametrize(("inner", "shape", "wanted"), [
    (convolution(), IMAGES, True),
    (nn.Sequential(convolution(), nn.BatchNorm2d(256), nn.ReLU()), IMAGES, True),
    (convolution(groups=4), IMAGES, False),
    (nn.Conv1d(64, 256, 3), IMAGES[:3], False),
    (nn.Linear(16, 8), IMAGES, False),
], ids=["convolution", "with normalisation", "groups of many channels", "one dimension", "no convolution"])
def test_the_compilers_choice_for_known_sizes_holds_for_free_ones(inner: Any, shape: tuple[int, ...],
                                                                  wanted: bool) -> None:
    one = program(inner, shape)
    assert prefers_channels_last(arranged(one)[0], one.args) is wanted


def test_a_compiler_that_cannot_be_asked_keeps_its_own_choice(caplog: pytest.LogCaptureFixture,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.graph import GraphLowering

    def gone(*_: object, **__: object) -> bool:
        raise AttributeError("decide_layout_opt")

    monkeypatch.setattr(GraphLowering, "decide_layout_opt", gone)
    one = program(convolution())
    assert prefers_channels_last(arranged(one)[0], one.args) is False
    assert "layout" in caplog.text


@pytest.mark.parametrize("as_program", [False, True], ids=["module", "exported program"])
def test_only_weights_of_convolutions_are_turned_and_the_source_stays(as_program: bool) -> None:
    one = program(WithTables())
    if as_program:
        given = torch.export.export(one.module, one.args, dynamic_shapes=one.dynamic_shapes, strict=False).module()
        one = TorchProgram(module=Passing(given), args=one.args, dynamic_shapes=one.dynamic_shapes)
    plain, _ = arranged(one)
    found, layout = turned(plain, one)
    assert layout == {"force_layout_optimization": True}
    in_nhwc = {name for name, tensor in found.state_dict.items()
               if tensor.dim() == 4 and not tensor.is_contiguous()}
    assert [name.rpartition("convolution.")[2] for name in in_nhwc] == ["weight"]
    assert all(tensor.is_contiguous() for tensor in one.module.state_dict().values())
    image = torch.randn(5, *IMAGES[1:])
    assert torch.allclose(found.module()(image)[0], plain.module()(image)[0], atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_a_module_that_cannot_be_copied_is_compiled_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    one = program(nn.utils.weight_norm(convolution()))
    exported, _ = arranged(one)
    one.module(*one.args)  # from here on its weight is a result of a computation, which cannot be copied
    assert turned(exported, one) == (exported, {})
    assert "NCHW" in caplog.text
