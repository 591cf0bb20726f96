"""Builds with ``engine.profile`` on a real GPU: each library's own profiler says what the layers of the engine that
serves take, and leaves a trace."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    DeviceRequest,
    EngineRequest,
    RuntimeRequest,
    SourceRequest,
)
from enginewright_builder.pipeline import run_build
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.report import read_report

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]
WIDTH = 1024


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of two large products, and data for it."""
    folder, nn = tmp_path_factory.mktemp("given"), torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).eval()
    batch = {0: torch.export.Dim("batch", min=1, max=64)}
    torch.export.save(torch.export.export(net, (torch.zeros(2, WIDTH),), dynamic_shapes=(batch,)), folder / "model.pt2")
    np.savez(folder / "data.npz", input=np.random.default_rng(3).standard_normal((300, WIDTH)).astype(np.float32))
    return folder


@pytest.mark.parametrize("library", ["tensorrt", "torch", "onnxruntime"])
def test_the_layers_of_what_serves_are_timed(library: str, given: Path, tmp_path: Path) -> None:
    request = BuildRequest(
        model_name="net", source=SourceRequest(uri=str(given / "model.pt2")), store_path=str(tmp_path / "store"),
        device=DeviceRequest(accelerator="gpu", gpu_count=1),
        runtime=RuntimeRequest(backends=("python",), python_runtimes=("tensorrt", "torch", "onnxruntime")),
        accuracy=AccuracyRequest(evaluation=DataRequest(uri=str(given / "data.npz"))),
        engine=EngineRequest(backend=library, precision="fp16", max_batch_size=8, build_budget_seconds=150,
                             profile=True))
    outcome = run_build(request, tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.ok, outcome
    published = tmp_path / "store" / outcome.fingerprint
    profiles = read_report(published).profiles
    print(json.dumps([(one.name, one.batch, one.run_microseconds, [(each.name, each.share) for each in one.layers],
                       one.notes) for one in profiles]))
    assert [one.problem for one in profiles] == [""] * len(profiles)
    assert {one.library for one in profiles} == {library}
    for one in profiles:
        events = json.loads(gzip.decompress((published / one.trace).read_bytes()))["traceEvents"]
        assert sum(event.get("dur", 0) for event in events) > 0
        if library == "onnxruntime":  # it tells when it launched kernels, not what they took
            assert one.notes
        else:
            # Of a run, its layers are most: nothing else computes there. A profiler's own events take some of what it
            # times, and the run is timed without it.
            assert 0 < sum(each.share for each in one.layers) <= 1.05
            assert one.layers[0].microseconds > 0
