"""Models that cannot be exported as free as they are: with one length of texts, without ONNX, and as one call of them
ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.contract import (
    BuildRequest,
    EngineRequest,
    Interface,
    RuntimeRequest,
    SourceRequest,
    TensorSpec,
)
from enginewright_builder.errors import UserError
from enginewright_builder.export import export_model, trace_model
from enginewright_builder.models.one_length import is_too_long, of_one_length
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.models.torch_base import TorchModel
from enginewright_builder.narrowing import Opened, as_free_as_possible, narrower, package_lacks
from enginewright_builder.shapes import takes_batches

pytestmark = pytest.mark.torch
IDS, MASK = (TensorSpec(name=name, dtype="int64", shape=("batch", "1..64")) for name in ("input_ids", "attention_mask"))
FAILED = UserError("ExportFailed", "a branch on values", field="spec.source")
RANDOM = UserError("UnsupportedModel", "draws random numbers")


def branching(sign: float = 1.0) -> TorchModel:
    """Twice the token ids where their sum times ``sign`` is positive, else their mean over the batch; texts of 40
    tokens and more it does not take."""
    import torch

    class Branching(torch.nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            if ids.shape[1] >= 40:
                raise IndexError("index out of range")
            shown = (ids * mask).float()
            return 2 * shown if sign * (shown.sum() - 1) > 0 else shown - shown.mean()

    outputs = (TensorSpec(name="y", dtype="float32", shape=("batch", "y_1")),)
    return TorchModel(Branching().eval(), Interface(inputs=(IDS, MASK), outputs=outputs), name="m", vocabulary=50,
                      end_token=7)


def tried(source: Any, refused: UserError = FAILED) -> list[Opened]:
    return list(narrower(Opened(source=source, stated=None), refused, "huggingface"))


def samples(source: Any, count: int, seed: int) -> Any:
    return example_inputs(source.interface, count, seed=seed, vocabulary=50, end_token=7)


def test_texts_of_one_length_come_first_and_then_one_call() -> None:
    batched, alone = tried(branching())
    assert [spec.shape for spec in batched.source.interface.inputs] == [("batch", 32)] * 2
    assert batched.source.interface.outputs[0].shape == ("batch", 32)
    assert batched.stated == Interface(inputs=batched.source.interface.inputs)
    assert "texts are of 32 tokens" in batched.source.notes[0]
    assert "a branch on values" in batched.source.notes[0]
    assert [spec.shape for spec in alone.source.interface.inputs] == [(1, 32)] * 2
    assert not takes_batches(alone.source.interface)
    assert "joins no requests" in alone.source.notes[0]
    assert (batched.as_ran, alone.as_ran) == (False, True)


@pytest.mark.parametrize(("errors", "told"), [
    ([FAILED, UserError("ExportFailed", "as before"), RANDOM], RANDOM),
    ([FAILED, UserError("InterfaceInvalid", "of one length"), UserError("ExportMismatch", "differs")], FAILED)])
def test_what_is_told_is_what_stands_in_the_way_of_the_model(errors: list[UserError], told: UserError) -> None:
    left, notes = iter(errors), list[str]()

    def attempt(opened: Opened) -> None:
        raise next(left)

    with pytest.raises(UserError) as caught:
        as_free_as_possible(Opened(source=branching(), stated=None), "huggingface", attempt, notes.append)
    assert caught.value is told
    assert notes == ["tried with less that is free: a branch on values"] * 2


def test_what_branches_on_values_is_exported_as_one_call_ran(tmp_path: Path) -> None:
    batched, alone = tried(branching())
    with pytest.raises(UserError) as caught:
        export_model(batched.source, tmp_path / "batched", [])
    assert caught.value.reason == "ExportFailed"
    calls = samples(alone.source, 3, seed=4)
    export_model(alone.source, tmp_path / "alone", alone.checks([calls]))  # raises where answers differ
    assert alone.source.run(calls)["y"].shape == (3, 1, 32)
    assert alone.source.torch_program("fp16") is None
    with pytest.raises(UserError, match="one call of it ran is exported as it is, not in fp16"):
        alone.source.export_onnx(tmp_path / "half.onnx", 18, "fp16")


def test_a_call_that_goes_another_way_is_found(tmp_path: Path) -> None:
    """The export is made of small ids, and other data goes the other way."""
    import torch

    class Turning(torch.nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return (ids * mask).float() * (1 if ids.max() < 20 else 3)

    source = TorchModel(Turning().eval(), branching().interface, name="m", vocabulary=50)
    *_, alone = tried(source)
    with pytest.raises(UserError) as caught:
        export_model(alone.source, tmp_path, [samples(alone.source, 2, seed=4)])
    assert caught.value.reason == "ExportMismatch"


@pytest.mark.parametrize(("refused", "kind"), [
    (UserError("ExportMismatch", "differs", field="spec.source"), "huggingface"),
    (UserError("UnsupportedModel", "answers in two ways", field="spec.source.uri"), "huggingface"),
    (FAILED, "torchscript")])
def test_nothing_else_is_narrowed(refused: UserError, kind: str) -> None:
    """Unless PyTorch's own package may serve it."""
    assert not list(narrower(Opened(source=branching(), stated=None), refused, kind))


def posterior() -> TorchModel:
    """A Gaussian process, whose Cholesky factor ONNX has no operator for."""
    import torch

    class Posterior(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.full((2,), 0.5))

        def forward(self, points: torch.Tensor) -> torch.Tensor:
            scaled = points * self.scale
            kernel = torch.exp(-torch.cdist(scaled, scaled)) + 0.1 * torch.eye(points.shape[1])
            factor: torch.Tensor = torch.linalg.cholesky(kernel)
            return factor.diagonal(dim1=1, dim2=2)

    interface = Interface(inputs=(TensorSpec(name="points", dtype="float32", shape=("batch", 5, 2)),),
                          outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 5)),))
    return TorchModel(Posterior().eval(), interface, name="m")


def test_what_has_no_onnx_is_traced_for_pytorchs_own_package(tmp_path: Path) -> None:
    source, folder = posterior(), tmp_path / "export"
    calls = [samples(source, count, seed=count) for count in (1, 3, 8)]
    with pytest.raises(UserError) as caught:
        export_model(source, folder, calls)
    assert caught.value.reason == "ExportFailed"
    (alone,) = narrower(Opened(source=source, stated=None), caught.value, "exported-program", packaged=True)
    exported = trace_model(alone.source, folder, calls, alone.no_graph)
    assert caught.value.message in exported.missing
    assert not exported.path.exists()
    assert exported.size_bytes == sum(tensor.nbytes for tensor in source.module.parameters()) > 0


@pytest.mark.parametrize(("scale", "reason"), [(1.0, "ExportMismatch"), (0.0, "ExportFailed")])
def test_what_is_traced_is_held_against_the_source(scale: float, reason: str, tmp_path: Path) -> None:
    """Random numbers, which no package draws alike, and a branch on values, which nothing traces."""
    import torch

    class Drawing(torch.nn.Module):
        def forward(self, points: torch.Tensor) -> torch.Tensor:
            if scale == 0 and points.sum() > 0:
                return points[:, :, 0]
            return points[:, :, 0] + scale * torch.randn_like(points[:, :, 0])

    source = TorchModel(Drawing().eval(), posterior().interface, name="m")
    with pytest.raises(UserError) as caught:
        trace_model(source, tmp_path / "export", [samples(source, 2, seed=1)], "no ONNX")
    assert caught.value.reason == reason


def test_a_package_alone_is_tried_before_the_graph_of_one_call() -> None:
    opened = list(narrower(Opened(source=branching(), stated=None), FAILED, "huggingface", packaged=True))
    assert [(one.as_ran, bool(one.no_graph)) for one in opened] == [(False, False), (False, True), (True, False)]
    assert opened[1].source.interface == branching().interface


@pytest.mark.parametrize(("backend", "runtimes", "image", "quality", "lacks"), [
    ("auto", ("onnxruntime", "torch"), "triton", False, []),
    ("torch", ("torch",), "", False, []),
    ("onnxruntime", ("onnxruntime", "torch"), "triton", False, ["spec.engine.backend"]),
    ("auto", ("onnxruntime",), "triton", False, ["spec.serving.image"]),
    ("auto", ("onnxruntime",), "", False, ["spec.engine.backend"]),
    ("tensorrt", ("tensorrt",), "triton", True, ["spec.engine.backend", "spec.serving.image", "spec.quality"])])
def test_what_a_package_alone_would_take(backend: str, runtimes: tuple[str, ...], image: str, quality: bool,
                                         lacks: list[str]) -> None:
    request = BuildRequest(model_name="m", source=SourceRequest(uri="/m.pt2"), engine=EngineRequest(backend=backend),
                           store_path="/store", keep_reference=quality,
                           runtime=RuntimeRequest(server_image=image, python_runtimes=runtimes))
    told = package_lacks(request)
    assert len(told) == len(lacks)
    assert all(field in words for field, words in zip(lacks, told, strict=True))


def test_what_takes_no_texts_that_are_filled_up_gets_no_length() -> None:
    """Clients could not send shorter ones."""
    import torch

    class Whole(torch.nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            if not mask.all():
                raise RuntimeError("sizes differ")
            return ids.float()

    assert not tried(TorchModel(Whole().eval(), branching().interface, name="m"))


def test_a_failure_on_a_length_is_narrowed() -> None:
    with pytest.raises(UserError) as caught:
        branching().run({"input_ids": np.ones((1, 42), np.int64), "attention_mask": np.ones((1, 42), np.int64)})
    assert [one.as_ran for one in tried(branching(), caught.value)] == [False, True]


@pytest.mark.parametrize(("each", "tokens"), [(1, [64]), (100, [16]), (400, [])])
def test_a_loop_over_tokens_makes_no_graph_of_too_many_operators(each: int, tokens: list[int]) -> None:
    import torch

    class Stepping(torch.nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            state = torch.zeros(len(ids))
            for place in range(ids.shape[1]):
                for _ in range(each):
                    state = state * 0.5 + mask[:, place]
            return state[:, None] * (ids * mask)

    source = TorchModel(Stepping().eval(), branching().interface, name="m", vocabulary=50, end_token=7)
    assert [one.source.interface.inputs[0].shape[1] for one in tried(source) if not one.as_ran] == tokens


def test_a_long_loop_is_refused_by_name(tmp_path: Path) -> None:
    """The exporter would take too long for its graph."""
    import torch

    class Decoding(torch.nn.Module):
        def forward(self, points: torch.Tensor) -> torch.Tensor:
            for _ in range(10_001):
                points = (points * 0.5).abs()
            return points[:, :, 0]

    source = TorchModel(Decoding().eval(), posterior().interface, name="m")
    with pytest.raises(UserError, match=r"one call runs 2\d,\d{3} operators") as caught:
        export_model(source, tmp_path, [samples(source, 2, seed=1)])
    assert caught.value.reason == "UnsupportedModel"
    assert not list(narrower(Opened(source=source, stated=None), caught.value, "huggingface", packaged=True))


def test_many_operators_that_no_length_saves_are_exported() -> None:
    assert is_too_long(64, lambda length: 100 * length)
    assert not is_too_long(32, lambda length: 100 * length)
    assert not is_too_long(64, lambda length: 9000)


def test_lengths_are_tried_from_the_longest_on() -> None:
    assert [length for length, _ in of_one_length((IDS, MASK))] == [64, 32, 16, 8]
    many = TensorSpec(name="input_ids", dtype="int64", shape=("batch", "1..4096"))
    image = TensorSpec(name="pixel_values", dtype="float32", shape=("batch", 3, 8, 8))
    length, inputs = next(of_one_length((many, image)))
    assert (length, [spec.shape for spec in inputs]) == (512, [("batch", 512), ("batch", 3, 8, 8)])
    sound = TensorSpec(name="input_values", dtype="float32", shape=("batch", "20..480000"))
    assert not list(of_one_length((sound,)))
    assert not list(of_one_length((image,)))


def test_made_up_texts_end_as_the_source_ends_them() -> None:
    ids = samples(branching(), 20, seed=1)["input_ids"]
    assert (ids[:, -1] == 7).all()
    assert not (ids[:, :-1] == 7).any()
    assert len(np.unique(ids)) > 20


def test_an_export_is_held_against_texts_that_are_filled_up() -> None:
    batched, alone = tried(branching())
    calls = {"attention_mask": np.ones((2, 1, 5), np.int64), "input_ids": np.full((2, 1, 5), 9)}
    assert not batched.checks([calls])
    same, filled = alone.checks([calls])
    assert same is calls
    assert filled["attention_mask"].tolist() == [[[1, 1, 1, 0, 0]]] * 2
    assert (filled["input_ids"] == 9).all()
    assert (calls["attention_mask"] == 1).all()


def test_what_draws_random_numbers_is_refused_by_name(tmp_path: Path) -> None:
    import torch

    class Hashing(torch.nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return ids * mask + torch.randn(ids.shape) / 1e6

    *_, alone = tried(TorchModel(Hashing().eval(), branching().interface, name="m"))
    with pytest.raises(UserError, match=r"draws random numbers in each call \(aten.randn") as caught:
        export_model(alone.source, tmp_path, [])
    assert caught.value.reason == "UnsupportedModel"


def test_a_mask_is_part_of_a_graph_also_where_the_model_leaves_it_out_if_nothing_is_filled_up(tmp_path: Path) -> None:
    import torch

    class Skipping(torch.nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return ids.float() if mask.all() else (ids * mask).float()

    source = TorchModel(Skipping().eval(), branching().interface, name="m", vocabulary=50)
    *_, alone = tried(source)
    export_model(alone.source, tmp_path, alone.checks([samples(alone.source, 2, seed=4)]))
