"""Profiles of the engines that serve, where they were asked for: after all that is timed in this half of a build. None
of them fails it: the report then says why there is none."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.competition.ladder import Climb
from enginewright_builder.contract import PROFILE_FOLDER, dumps, load
from enginewright_builder.engines.around import is_around
from enginewright_builder.engines.base import Artifact
from enginewright_builder.engines.beside import environment
from enginewright_builder.engines.profile_worker import FOUND, TRACE, Job, keep_inputs
from enginewright_builder.engines.torch_compile import DESCRIPTION_FILE, PACKAGE_FILE, compile_program
from enginewright_builder.measure.profile import EngineProfile
from enginewright_builder.models.base import SourceModel
from enginewright_builder.tensors import Tensors

log = logging.getLogger(__name__)

# Of all engines together; what PyTorch's compiler takes comes on top.
SECONDS = 180.0
_WORKER = [sys.executable, "-m", "enginewright_builder.engines.profile_worker"]


@dataclass(frozen=True, kw_only=True)
class Served:
    """The candidate ``name`` as it serves batches of ``batch``."""

    name: str
    artifact: Artifact
    batch: int


def served(climbed: Climb) -> Iterator[Served]:
    """Each engine that serves once, at the largest batch in use that it serves."""
    batches: dict[str, int] = {}
    for batch, name in sorted(climbed.shipped.items()):
        if batch in climbed.references or name not in batches:
            batches[name] = batch
    artifacts = {one.name: one.artifact for one in climbed.built}
    for name, batch in batches.items():
        if artifact := artifacts.get(name):
            yield Served(name=name, artifact=artifact, batch=batch)


def profile_served(engines: Iterator[Served], source: SourceModel, given: Callable[[int], Tensors], scratch: Path,
                   staging: Path) -> tuple[EngineProfile, ...]:
    """Leaves traces below ``staging``. ``given`` is a batch of what engines take. Never raises for what goes wrong with
    an engine: its profile has the problem."""
    found, until = [], time.monotonic() + SECONDS
    for number, one in enumerate(engines):
        folder = scratch / f"profile-{number}"
        try:
            found.append(_profile(one, source, given, folder, staging, until))
        except Exception as error:  # of any library
            log.warning("%s could not be profiled", one.name, exc_info=error)
            why = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            found.append(EngineProfile(name=one.name, library=one.artifact.rung.backend, batch=one.batch,
                                       problem=why[0][:300]))
        shutil.rmtree(folder, ignore_errors=True)
    return tuple(found)


def _profile(one: Served, source: SourceModel, given: Callable[[int], Tensors], folder: Path, staging: Path,
             until: float) -> EngineProfile:
    folder.mkdir(parents=True)
    began = time.monotonic()
    files = _files(one.artifact, source, folder)
    until += time.monotonic() - began
    inputs, job = folder / "inputs.npz", folder / "job.json"
    keep_inputs(inputs, given(one.batch))
    trace = f"{PROFILE_FOLDER}/{re.sub(r'[^a-z0-9]+', '-', one.name.lower()).strip('-')}.trace.json.gz"
    job.write_text(dumps(Job(name=one.name, library=one.artifact.rung.backend, batch=one.batch, inputs=str(inputs),
                             files={name: str(path) for name, path in files.items()}, folder=str(folder), trace=trace,
                             parameters=one.artifact.parameters)), encoding="utf-8")
    _run([*_WORKER, str(job)], until)
    found = load(EngineProfile, (folder / FOUND).read_text(encoding="utf-8"))
    if found.trace:
        (staging / PROFILE_FOLDER).mkdir(exist_ok=True)
        shutil.copyfile(folder / TRACE, staging / found.trace)
    return found


def _run(words: list[str], until: float) -> None:
    """Raises ``RuntimeError`` with the last words of a process that failed, or took too long."""
    try:
        ended = subprocess.run(words, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, timeout=max(1.0, until - time.monotonic()), check=False)
    except subprocess.TimeoutExpired as late:
        raise RuntimeError(f"the profiler was stopped: all of it may take {SECONDS:.0f} s") from late
    if ended.returncode:
        lines = [line for line in ended.stderr.decode(errors="replace").splitlines() if line.strip()]
        raise RuntimeError(lines[-1] if lines else f"the profiler ended with status {ended.returncode}")


def _files(artifact: Artifact, source: SourceModel, folder: Path) -> dict[str, Path]:
    """What is profiled: the engine's own files, but for PyTorch's on a CPU, which are compiled once more."""
    files = {name: path for name, path in artifact.files.items() if not is_around(name)}
    rung = artifact.rung
    if rung.backend != "torch":
        return files
    program = source.torch_program(rung.precision, rung.one_batch)
    if program is None:
        raise ValueError("the source cannot be traced by torch.export again")
    if any(argument.is_cuda for argument in program.args):
        return files
    compile_program(program, folder, folder, tf32=False, marked=True)
    shutil.copyfile(files[DESCRIPTION_FILE], folder / DESCRIPTION_FILE)
    return {name: folder / name for name in (PACKAGE_FILE, DESCRIPTION_FILE)}
