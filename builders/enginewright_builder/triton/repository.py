"""A Triton model repository on disk."""

from __future__ import annotations

from pathlib import Path

from enginewright_builder.contract import ServingChoice
from enginewright_builder.engines.base import Artifact, Tensors


def write_model(root: Path, model_name: str, artifact: Artifact, serving: ServingChoice, *, cores: int = 0,
                gpus: tuple[int, ...] = (), warmup: Tensors | None = None) -> Path:
    """Writes ``<root>/<model_name>/{config.pbtxt,1/…}`` and returns the model's folder; ``root`` is made if absent.

    ``warmup`` is one representative batch: its shapes are warmed with real data before the server says ready. ``cores``
    (0: all of this process) divided by the instances is the thread count of each instance. For backend ``python`` a
    ``model.py`` that runs ONNX Runtime is added. Artifact files are hard-linked where possible, else copied.
    ``artifact.parameters`` named ``profiles`` and ``graph_batches`` (comma-separated) set the TensorRT optimisation
    profiles and the batch sizes captured as CUDA graphs; all others go into ``config.pbtxt`` as they are.
    """
    raise NotImplementedError
