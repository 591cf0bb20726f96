"""The comparison of ways to serve, with a real tritonserver on the CPU: what needs no GPU of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench import ways
from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.engines.base import Artifact, Rung
from enginewright_builder.load import run_on_time
from enginewright_builder.triton.server import TritonServer

INTERFACE = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 16)),),
                      outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 8)),))

pytestmark = pytest.mark.torch


@pytest.mark.triton
def test_a_pytorch_baseline_answers_by_message_and_by_shared_memory(tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "WARMUP_SECONDS", 0.1)
    monkeypatch.setattr(ways, "SECONDS", 0.3)
    module, x = torch.nn.Linear(16, 8).eval(), np.random.default_rng(0).standard_normal((4, 16), np.float32)
    torch.export.save(torch.export.export(module, (torch.from_numpy(x),)), tmp_path / "program.pt2")
    artifact = Artifact(rung=Rung(backend="torch", precision="fp32"), files={}, triton_backend="python",
                        interface=INTERFACE, runtime_version="")
    ways.baseline_way(artifact, tmp_path / "program.pt2", "eager-fp32", 4, gpus=())(tmp_path / "served")
    request, expected = {"x": x}, {"y": module(torch.from_numpy(x)).detach().numpy()}

    async def served() -> list[dict[str, Any]]:
        async with TritonServer(tmp_path / "served", models=(ways.MODEL,)) as server:
            return [ways.timed(server.grpc_url, name, request, expected)
                    for name in ("grpc", "system-shared-memory")]

    for row in run_on_time(served()):
        assert row["cosine"] == pytest.approx(1.0)
        assert row["requests"] > 0
        layers = row["layers_ms"]
        within = sum(layers[name] for name in ("queue", "compute_input", "compute_infer", "compute_output"))
        assert 0 < layers["compute_infer"] <= within <= layers["server"]
        assert layers["outside"] > 0


def test_a_way_that_answers_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        def __init__(self, *_: object) -> None: ...
        def ask(self) -> None: ...
        def close(self) -> None: ...
        def answer(self, name: str) -> object:
            return np.array([1.0, -1.0])

    monkeypatch.setattr(ways, "Client", Wrong)
    monkeypatch.setattr(ways, "WARMUP_SECONDS", 0.0)
    monkeypatch.setattr(ways, "SECONDS", 0.0)
    with pytest.raises(ValueError, match="cosine"):
        ways.timed("", "grpc", {}, {"y": np.array([1.0, 1.0])})
