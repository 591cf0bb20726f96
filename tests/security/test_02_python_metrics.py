"""Finding 2 for metrics: the build has the key that engines are signed with, and runs `python:NAME` in its own process.
So that code comes from the builder image alone, never from a source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
METRIC = """
from pathlib import Path

Path(__file__).with_name("ran").touch()

def metric(reference, candidate):
    return [1.0]
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    weights = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    return folder


def bring(folder: Path) -> Path:
    """A package with a metric, as an installer leaves it; returns what appears once its code has run."""
    folder.mkdir(exist_ok=True)
    (folder / "house.py").write_text(METRIC)
    installed = folder / "house-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: house\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[enginewright.metrics]\nhouse = house:metric\n")
    return folder / "ran"


def refused(source: Path, *path: Path) -> dict[str, Any]:
    """The image's program, started in the source's folder, which knows packages of ``path`` besides its own."""
    command = [sys.executable, str(ROOT / "builders" / "images" / "enginewright-build"), "--model", ".", "--json",
               "--output", str(source.parent / "store"), "--metric", "python:house", "--budget-seconds", "30"]
    paths = os.pathsep.join(str(one) for one in (ROOT / "builders", *path))
    done = subprocess.run(command, cwd=source, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
                          check=False, timeout=240)
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return dict(outcome["error"])


def test_a_metric_in_a_source_is_not_found_and_not_run(source: Path) -> None:
    ran = bring(source)
    assert refused(source)["reason"] == "MetricUnknown"
    assert not ran.exists()


def test_a_metric_of_the_image_is_run(tmp_path: Path, source: Path) -> None:
    """By the same program: what the test above does not see could have been seen."""
    ran = bring(tmp_path / "image")
    assert refused(source, tmp_path / "image")["reason"] == "MetricInvalid"
    assert ran.exists()
