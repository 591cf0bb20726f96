"""Which layout compiled PyTorch gets, asked of the real compiler as for a GPU: on a CPU with oneDNN it always wants
NHWC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from enginewright_builder.models.base import TorchProgram

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from enginewright_builder.engines.torch_layout import arranged, prefers_channels_last  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
IMAGES = (3, 64, 16, 16)


class Answering(nn.Module):
    """The inner module's answer as a tuple of one, as sources give it."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Any) -> Any:
        return (self.inner(*inputs),)


class Turned(nn.Module):
    def forward(self, image: Any) -> Any:
        return (image * 2).to(memory_format=torch.channels_last)


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


def test_answers_lie_row_by_row_whatever_the_model_does() -> None:
    one = program(Turned())
    exported, layout = arranged(one)
    answer, = exported.module()(torch.randn(5, *IMAGES[1:]))
    assert not one.module(*one.args)[0].is_contiguous()
    assert answer.is_contiguous()
    assert layout == {}
