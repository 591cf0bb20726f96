"""One engine through two of Triton's backends, on a real tritonserver that has one of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from enginewright_builder.contract import BatchingRequest, InstancesRequest, ObjectiveRequest
from enginewright_builder.engines.base import Artifact
from enginewright_builder.errors import UserError
from enginewright_builder.load import run_on_time
from enginewright_builder.sweep import SweepResult, Task
from enginewright_builder.sweep.ways import Swept, sweep_ways
from enginewright_builder.triton.server import TritonServer

pytestmark = pytest.mark.triton


def swept(artifact: Artifact, root: Path) -> Swept:
    def task(way: Artifact) -> Task:
        return Task(artifact=way, model_name="multiply", inputs=[{"x": np.ones((1, 4, 8), np.float32)}],
                    max_batch_size=4, objective=ObjectiveRequest(), batching=BatchingRequest(max_queue_delay_us=0),
                    instances=InstancesRequest(count=1), cores=1, budget_seconds=4, max_measurements=2)

    async def run() -> Swept:
        async with TritonServer(root) as server:
            return await sweep_ways(server, root, artifact, task)

    return run_on_time(run())


def test_the_backend_that_runs_it_ships_and_the_report_tells_of_the_other(artifact: Artifact, tmp_path: Path) -> None:
    both = replace(artifact, triton_backend="onnxruntime", in_python=artifact.parameters)
    way, result = swept(both, tmp_path)
    assert isinstance(result, SweepResult)
    assert (way.triton_backend, way.files) == ("python", artifact.files)
    assert result.best.throughput > 0
    assert "Triton's backend onnxruntime did not run it: model 'multiply' does not load" in result.reason
    assert list(tmp_path.iterdir()) == []


def test_what_no_backend_runs_is_refused_as_before(artifact: Artifact, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not load") as caught:
        swept(replace(artifact, triton_backend="onnxruntime"), tmp_path)
    assert caught.value.reason == "ServerLoadFailed"


def test_of_two_that_run_it_the_other_is_told_of(artifact: Artifact, tmp_path: Path) -> None:
    _, result = swept(replace(artifact, in_python=artifact.parameters), tmp_path)
    assert "Through Triton's backend python it was" in result.reason
