"""The benchmark's way through a model, on this CPU with a small one: what it would write for a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.measuring import ten_times

pytestmark = pytest.mark.torch


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import cells, run

    monkeypatch.setattr(run, "CELL_SECONDS", 0.0)
    monkeypatch.setattr(run, "MEASURE_SECONDS", 0.0)
    monkeypatch.setattr(cells, "BATCHES", (1, 4))


@pytest.mark.usefixtures("quick")
def test_every_candidate_is_measured_at_every_batch(tmp_path: Path) -> None:
    import torch

    from bench import cells, run
    from bench.zoo import Entry
    from enginewright_builder.contract import DeviceRequest, Interface, TensorSpec
    from enginewright_builder.models import SourceModel
    from enginewright_builder.models.torch_base import TorchModel
    from enginewright_builder.tensors import Call, Tensors

    class Slow(TorchModel):
        def bind(self, inputs: Tensors) -> Call:
            return ten_times(super().bind(inputs))

    def load(_: Path, device: str) -> SourceModel:
        interface = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 64)),),
                              outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 8)),))
        layers = [layer for _ in range(20) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
        module = torch.nn.Sequential(*layers, torch.nn.Linear(64, 8))
        return Slow(module.eval(), interface, name="small", device=device)

    small = Entry("small", "random", load, samples=400)
    found = run.benchmark(small, tmp_path, tmp_path / "scratch", tmp_path / "caches", DeviceRequest(), 3000.0,
                          run.chosen_engines("fp32,int8-dynamic"))
    assert [cell["batch"] for cell in found.record["cells"]] == [1, 4]
    for cell in found.record["cells"]:
        assert "onnxruntime fp32" in cell["candidates"]
        assert cell["candidates"][cell["shipped"]]["passes"]
        assert cells.regret(cell) >= 1
    assert found.shipped(3).artifact is not None
