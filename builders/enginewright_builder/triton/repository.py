"""A Triton model repository on disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from enginewright_builder.contract import ServingChoice
from enginewright_builder.engines.base import Artifact, Tensors
from enginewright_builder.system import available_cpus
from enginewright_builder.triton.model_config import ServedModel, model_config, to_text, warmup_data

CONFIG_FILE = "config.pbtxt"
VERSION = "1"
# Parameters of an artifact that have a place of their own in the schema.
PROFILES, GRAPH_BATCHES = "profiles", "graph_batches"


def write_model(root: Path, model_name: str, artifact: Artifact, serving: ServingChoice, *, cores: int = 0,
                gpus: tuple[int, ...] = (), warmup: Tensors | None = None) -> Path:
    """Writes ``<root>/<model_name>/{config.pbtxt,1/…}`` and returns the model's folder; ``root`` is made if absent.

    ``warmup`` is one representative batch: its shapes are warmed with real data before the server says ready. ``cores``
    (0: all of this process) divided by the instances is the thread count of each instance. For backend ``python`` a
    ``model.py`` that runs ONNX Runtime is added. Artifact files are hard-linked where possible, else copied.
    ``artifact.parameters`` named ``profiles`` and ``graph_batches`` (comma-separated) set the TensorRT optimisation
    profiles and the batch sizes captured as CUDA graphs; all others go into ``config.pbtxt`` as they are.

    Raises :class:`UserError` as :func:`model_config` does, and ``FileExistsError`` when the model is already there.
    """
    config = model_config(served_model(model_name, artifact, serving, cores=cores, gpus=gpus, warmup=warmup))
    folder = root / model_name
    version = folder / VERSION
    version.mkdir(parents=True)
    for name, source in artifact.files.items():
        _place(source, version / name)
    if artifact.triton_backend == "python":
        body = resources.files("enginewright_builder.triton.python_model").joinpath("model.py").read_bytes()
        (version / "model.py").write_bytes(body)
    if warmup is not None:
        (folder / "warmup").mkdir()
        for name, data in warmup_data(config, warmup).items():
            (folder / "warmup" / name).write_bytes(data)
    (folder / CONFIG_FILE).write_text(to_text(config))
    return folder


def served_model(model_name: str, artifact: Artifact, serving: ServingChoice, *, cores: int = 0,
                 gpus: tuple[int, ...] = (), warmup: Tensors | None = None) -> ServedModel:
    """What ``config.pbtxt`` says of this artifact in this configuration."""
    parameters = dict(artifact.parameters)
    profiles = _integers(parameters.pop(PROFILES, ""))
    graph_batches = _integers(parameters.pop(GRAPH_BATCHES, ""))
    if artifact.triton_backend == "python":
        parameters.setdefault("threads", str(threads_per_instance(serving.instance_count, cores)))
        parameters.setdefault("model_file", _main_file(artifact.files))
    filename = _main_file(artifact.files) if artifact.triton_backend != "python" else ""
    return ServedModel(name=model_name, triton_backend=artifact.triton_backend, interface=artifact.interface,
                       serving=serving, parameters=parameters, gpus=gpus, profiles=profiles,
                       graph_batches=graph_batches, default_model_filename=filename, warmup=warmup)


def threads_per_instance(instances: int, cores: int = 0) -> int:
    """Cores shared out over the instances, at least one each."""
    return max(1, (cores or available_cpus()) // instances)


def _main_file(names: Iterable[str]) -> str:
    """The model itself, apart from external weights and the like."""
    ordered = sorted(names, key=lambda name: (not name.endswith((".onnx", ".plan")), name))
    return ordered[0]


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def _place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
