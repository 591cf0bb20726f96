"""ONNX Runtime as this builder uses it: by the code that serves it, quiet, on the CPUs it may have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# First: it switches telemetry off before ONNX Runtime is imported.
from enginewright_builder.pod.python_model import ort_session as served  # isort: skip

import onnxruntime as ort

from enginewright_builder.session_runner import SessionRunner
from enginewright_builder.system import available_cpus

__all__ = ["CUDA", "OrtRunner", "has_provider", "ort", "version"]

CUDA = served.CUDA


def version() -> str:
    return str(ort.__version__)


def has_provider(name: str) -> bool:
    """Whether this build of ONNX Runtime has it, such as ``CUDAExecutionProvider``."""
    return name in ort.get_available_providers()


class OrtRunner(SessionRunner):
    """A loaded ONNX model; call it with one batch of named arrays. ``parameters`` are those of the session, ``batched``
    as in :class:`SessionRunner`."""

    def __init__(self, path: Path, *, accelerator: str = "cpu", parameters: Mapping[str, str] | None = None,
                 batched: bool = True) -> None:
        # Its threads would otherwise spin on after a run, at the cost of what is measured next.
        settings = {"threads": str(available_cpus()), "session.force_spinning_stop": "1", **(parameters or {})}
        super().__init__(served.Session(path.parent, [path.name], device=0 if accelerator == "gpu" else -1,
                                        parameters=settings), batched=batched)
