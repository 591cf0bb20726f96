"""A process of the builder that the kernel ends for its memory: no fault of the model or of the data."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from enginewright_builder.engines.modelopt_graphs import QUANTIZE, Job, check_written
from enginewright_builder.errors import TransientError
from enginewright_builder.models.tensorflow import Worker


def killed() -> subprocess.Popen[str]:
    words = f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})"
    return subprocess.Popen([sys.executable, "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_modelopt_that_the_kernel_ends_wants_memory() -> None:
    job = Job(task=QUANTIZE, source="model.onnx", target="int8.onnx", precision="int8")
    with killed() as process:
        code = process.wait()
    with pytest.raises(TransientError, match="ran out of memory while it wrote int8 into the graph") as raised:
        check_written(job, code, "")
    assert raised.value.reason == "OutOfMemory"
    assert "spec.engine.calibration.samples" in raised.value.report().remedy


def test_tensorflow_that_the_kernel_ends_wants_memory() -> None:
    worker = Worker.__new__(Worker)  # as opened: what is in the file is not the point
    worker.path = Path("model.keras")
    told = "while TensorFlow had the model open"
    with killed() as worker._process, pytest.raises(TransientError, match=told) as raised:
        worker._ask("run")
    assert raised.value.reason == "OutOfMemory"
