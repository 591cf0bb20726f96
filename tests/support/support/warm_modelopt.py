"""In the place of ``subprocess`` where ModelOpt's worker is started: forks of a process that has imported ModelOpt and
PyTorch, which takes a worker three of its four seconds."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from typing import Any

from enginewright_builder.engines import modelopt_worker

__all__ = ["CompletedProcess", "TimeoutExpired", "run"]
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["modelopt.onnx.autocast", "modelopt.onnx.quantization", modelopt_worker.__name__])


def run(words: Sequence[str], *, env: Mapping[str, str], timeout: float | None,
        **_: Any) -> CompletedProcess[str]:
    """As :func:`subprocess.run` of the worker: ``words`` end with its job."""
    job = words[-1]
    errors = Path(job).with_suffix(".errors")
    worker = CONTEXT.Process(target=_work, args=(job, dict(env), errors))
    worker.start()
    worker.join(timeout)
    if worker.exitcode is None:
        worker.kill()
        worker.join()
        raise TimeoutExpired(words, timeout or 0.0)
    return CompletedProcess(words, worker.exitcode, "", errors.read_text())


def _work(job: str, environment: dict[str, str], errors: Path) -> None:
    os.environ.update(environment)
    with errors.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    modelopt_worker.main([job])
