"""A Triton model repository on disk."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from enginewright_builder.contract import Interface, ServingChoice
from enginewright_builder.engines.around import is_around
from enginewright_builder.engines.base import Artifact, Joined, Member
from enginewright_builder.engines.composite import member_folders, runtime
from enginewright_builder.engines.session_parameters import (
    GRAPH_BATCHES,
    PROFILES,
    captured_batches,
    session_parameters,
)
from enginewright_builder.own_steps import OWN_STEPS_FILE
from enginewright_builder.sequences import described_state
from enginewright_builder.system import available_cpus
from enginewright_builder.tensors import Tensors
from enginewright_builder.texts import TOKENISER_FILE
from enginewright_builder.triton.model_config import TAKES_MISSING, ServedModel, model_config, to_text, warmup_data

CONFIG_FILE = "config.pbtxt"
VERSION = "1"
ENGINES_FILE = "engines.json"
PYTHON_MODEL = "enginewright_builder.pod.python_model"
# Which modules run the engines of each library in Triton's Python backend.
SESSIONS = {"onnxruntime": {"ort_session.py"}, "tensorrt": {"trt_session.py", "shared_memory.py"},
            "torch": {"aoti_session.py", "shared_memory.py"}}
LENGTHS, SEQUENCES = "lengths.py", "sequences.py"
# Libraries that take tensors where they lie. Triton copies inputs to the host unless one of these runs all engines of a
# model: each receives tensors in a way of its own. Functions of the user's own take NumPy's arrays.
DLPACK_RUNTIMES = ({"torch"}, {"tensorrt"})


def write_model(root: Path, model_name: str, artifact: Artifact, serving: ServingChoice, *, cores: int = 0,
                gpus: tuple[int, ...] = (), warmup: Tensors | None = None, missing: bool = False) -> Path:
    """Writes ``<root>/<model_name>/{config.pbtxt,1/…}`` and returns the model's folder; ``root`` is made if absent.

    The ``config.pbtxt`` names no model: Triton takes the name that the folder is mounted or linked under.

    ``warmup`` is one representative batch: its shapes are warmed with real data before the server says ready.
    ``missing``: the source takes NaN for a value that is missing, and ``config.pbtxt`` says so. ``cores``
    (0: all of this process) divided by the instances is the thread count of each instance. For backend ``python``
    ``model.py`` is added, with the modules that it needs and ``engines.json``, which has what each engine gets, and
    ``tokeniser.py`` and ``own_steps.py`` where what they read is among the files. Artifact files are hard-linked where
    possible, else copied. For native backends ``artifact.parameters`` named ``profiles`` and ``graph_batches``
    (comma-separated) set the TensorRT optimisation profiles and the batch sizes captured as CUDA graphs; all others go
    into ``config.pbtxt`` as they are.

    Raises :class:`UserError` as :func:`model_config` does, ``FileExistsError`` when the model is already there, and
    ``ValueError`` for a composite whose members do not take the largest batch.
    """
    members = artifact.members or (Member(up_to=max(1, serving.max_batch_size), artifact=artifact),)
    if members[-1].up_to < serving.max_batch_size:
        raise ValueError(f"the largest member takes {members[-1].up_to}, requests up to {serving.max_batch_size}")
    if artifact.interface.sequence_batching:
        warmup = None  # it would begin a sequence: the smoke test warms a replica
    served = served_model("", artifact, serving, cores=cores, gpus=gpus, warmup=warmup)
    if missing:
        served = replace(served, parameters={**served.parameters, TAKES_MISSING: "yes"})
    config = model_config(served)
    folder = root / model_name
    version = folder / VERSION
    version.mkdir(parents=True)
    for name, source in artifact.files.items():
        place(source, version / name)
    if artifact.triton_backend == "python":
        _write_program(version, members, artifact.interface, whole=not artifact.members,
                       joined=_joined(artifact, serving))
    if warmup is not None:
        (folder / "warmup").mkdir()
        for name, data in warmup_data(config, warmup).items():
            (folder / "warmup" / name).write_bytes(data)
    (folder / CONFIG_FILE).write_text(to_text(config))
    return folder


def served_model(model_name: str, artifact: Artifact, serving: ServingChoice, *, cores: int = 0,
                 gpus: tuple[int, ...] = (), warmup: Tensors | None = None) -> ServedModel:
    """What ``config.pbtxt`` says of this artifact in this configuration; ``model_name`` empty names no model."""
    parameters = dict(artifact.parameters)
    profiles: tuple[int, ...] = ()
    graph_batches: tuple[int, ...] = ()
    if artifact.triton_backend == "python":
        parameters = {"threads": str(threads_per_instance(serving.instance_count, cores))}
        runtimes = {runtime(member.artifact) for member in artifact.members} or {artifact.python_runtime}
        if gpus and runtimes in DLPACK_RUNTIMES and OWN_STEPS_FILE not in artifact.files:
            parameters["FORCE_CPU_ONLY_INPUT_TENSORS"] = "no"
    else:
        profiles = _integers(parameters.pop(PROFILES, ""))
        graph_batches = _integers(parameters.pop(GRAPH_BATCHES, ""))
    filename = _main_file(artifact.files) if artifact.triton_backend != "python" else ""
    return ServedModel(name=model_name, triton_backend=artifact.triton_backend, interface=artifact.interface,
                       serving=serving, parameters=parameters, gpus=gpus, profiles=profiles,
                       graph_batches=graph_batches, default_model_filename=filename, warmup=warmup,
                       ragged=frozenset(joined.fill) if (joined := _joined(artifact, serving)) else frozenset())


def _joined(artifact: Artifact, serving: ServingChoice) -> Joined | None:
    """Only Python fills requests up, and only where there is a batch to join them in."""
    return artifact.joined if artifact.triton_backend == "python" and serving.max_batch_size > 1 else None


def threads_per_instance(instances: int, cores: int = 0) -> int:
    """Cores shared out over the instances, at least one each."""
    return max(1, (cores or available_cpus()) // instances)


def engines(members: Iterable[Member], *, whole: bool) -> dict[str, Any]:
    """``engines.json``; ``whole`` for a single engine, whose files lie in the version folder itself."""
    members = tuple(members)
    folders = [""] if whole else [f"{folder}/" for folder in member_folders(members)]
    return {"engines": [
        {"up_to": one.up_to, "runtime": runtime(one.artifact),
         "files": sorted(folder + name for name in one.artifact.files if not is_around(name)),
         "buckets": captured_batches(one.artifact), "parameters": session_parameters(one.artifact)}
        for one, folder in zip(members, folders, strict=True)]}


def _write_program(version: Path, members: tuple[Member, ...], interface: Interface, *, whole: bool,
                   joined: Joined | None) -> None:
    described = engines(members, whole=whole)
    if joined:
        described["lengths"] = joined.described
    if kept := described_state(interface):
        described["sequences"] = kept
    (version / ENGINES_FILE).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    around = [program for file, program in ((TOKENISER_FILE, "tokeniser.py"), (OWN_STEPS_FILE, "own_steps.py"))
              if (version / file).exists()]
    programs = {"model.py", *around, *([LENGTHS] if joined else []), *([SEQUENCES] if kept else [])}
    for name in programs.union(*(SESSIONS[entry["runtime"]] for entry in described["engines"])):
        (version / name).write_bytes(resources.files(PYTHON_MODEL).joinpath(name).read_bytes())


def _main_file(names: Iterable[str]) -> str:
    """The model itself, apart from external weights and the like."""
    ordered = sorted(names, key=lambda name: (not name.endswith((".onnx", ".plan")), name))
    return ordered[0]


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def place(source: Path, target: Path) -> None:
    """A file that is read there and no longer written: linked where that can be, else copied."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
