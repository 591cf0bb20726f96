"""A source behind and before functions of the user's own, which stand in its folder.

They run in a process of their own, without this one's environment: what a function breaks, leaks or ends is no part of
the build. Engines get them as they are (``engines/own_steps.py``), and answer what clients get.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from enginewright_builder.contract import Interface, PythonSteps, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.models import own_steps_worker
from enginewright_builder.models.base import SourceModel, Tokenize, TorchProgram
from enginewright_builder.models.wrapped import Wrapped
from enginewright_builder.own_steps import FIELD, OWN_STEPS_FILE, answered, files_of, sent
from enginewright_builder.pod.python_model import own_steps as program
from enginewright_builder.shapes import takes_batches
from enginewright_builder.tensors import Call, Tensors

# What the process gets of this one's environment: no credentials of sources and stores.
_PASSED_ON = ("PATH", "TMPDIR", "LANG", "LD_LIBRARY_PATH")
# One call of a function: a request that takes longer is no request.
_SECONDS = 120.0


class OwnStepped(Wrapped):
    """``inner`` asked with what clients send and answering what they get, as ``stated`` says. ``folder`` is the
    source's. ``files`` are those of an engine, by name, below ``workspace``. Raises :class:`UserError` ``StepInvalid``
    for functions that do not run, and ``InterfaceInvalid`` for a source without a batch."""

    def __init__(self, inner: SourceModel, stated: Interface, folder: Path, workspace: Path) -> None:
        super().__init__(inner)
        assert stated.python_steps is not None
        self.inner, self._steps = inner, stated.python_steps
        if not takes_batches(inner.interface):
            raise UserError("InterfaceInvalid", "functions of your own stand beside a model that takes batches alone. "
                            f"{inner.notes[0] if inner.notes else ''}".strip(), field=FIELD, value="no batch",
                            remedy="export the model with a free first dimension, or leave pythonSteps out")
        self.interface: Interface = Interface(inputs=sent(stated) or inner.interface.inputs,
                                              outputs=answered(stated) or inner.interface.outputs)
        described = _described(self._steps, inner.interface, self.interface)
        self.files = _laid_out(self._steps, described, folder, workspace)
        self.process = Process(self.files[OWN_STEPS_FILE])

    @property
    def tokenize(self) -> Tokenize | None:
        return None if self._steps.preprocess else self.inner.tokenize

    def before(self, inputs: Tensors) -> Tensors:
        """What the source takes."""
        return self.process.ask("before", inputs) if self._steps.preprocess else inputs

    def behind(self, answers: Tensors) -> Tensors:
        """What clients get."""
        return self.process.ask("behind", answers) if self._steps.postprocess else answers

    def run(self, inputs: Tensors) -> Tensors:
        return self.behind(self.inner.run(self.before(inputs)))

    def bind(self, inputs: Tensors) -> Call:
        """Without the functions, which a client of the source runs."""
        return self.inner.bind(self.before(inputs))

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        self.inner.export_onnx(path, opset, precision)

    def torch_program(self, precision: str, batch: int = 0) -> TorchProgram | None:
        return self.inner.torch_program(precision, batch)


class Process:
    """Runs the functions that ``file`` names. It ends with this process, or once nothing holds this. Raises
    :class:`UserError` ``StepInvalid``."""

    def __init__(self, file: Path) -> None:
        told = json.loads(file.read_text(encoding="utf-8"))
        self._names = {"before": ("preprocess", told["preprocess"]), "behind": ("postprocess", told["postprocess"])}
        self._folder = Path(tempfile.mkdtemp(prefix="own-steps-", dir=file.parent))
        self._errors = self._folder / "errors.log"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-B", own_steps_worker.__file__, program.__file__, str(file), *sys.path],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=self._folder,
                env=_environment(self._folder))
        weakref.finalize(self, _end, self._process)
        self._numbers = itertools.count()
        self._tell("open", {"do": "open"})

    def ask(self, do: str, arrays: Tensors) -> dict[str, np.ndarray[Any, Any]]:
        """``do``: ``before`` or ``behind``."""
        number = next(self._numbers)
        given, made = (self._folder / f"{side}-{number}.npz" for side in ("inputs", "outputs"))
        np.savez(given, **{f"={name}": array.astype(np.str_) if array.dtype.kind == "O" else array
                           for name, array in arrays.items()})
        try:
            self._tell(do, {"do": do, "inputs": str(given), "outputs": str(made)})
            with np.load(made, allow_pickle=False) as file:
                found = {name[1:]: file[name] for name in file.files}
        finally:
            for path in (given, made):
                path.unlink(missing_ok=True)
        return {name: array.astype(np.object_) if array.dtype.kind == "U" else array for name, array in found.items()}

    def _tell(self, do: str, asked: Mapping[str, str]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], _SECONDS)[0]:
                self._process.kill()
                raise self._failed(do, f"gave no answer within {_SECONDS:.0f} s")
            line = self._process.stdout.readline()
        if not line:
            said = self._errors.read_text(errors="replace").strip().splitlines()
            raise self._failed(do, f"ended its process with status {self._process.wait()}"
                                   f"{': ' + said[-1][:300] if said else ''}")
        if problem := json.loads(line).get("error"):
            raise self._failed(do, problem)

    def _failed(self, do: str, problem: str) -> UserError:
        if do == "open":
            return UserError("StepInvalid", f"functions of the source's folder do not load: {problem}", field=FIELD,
                             value=", ".join(name for _, name in self._names.values() if name),
                             remedy="mend the file; what it opens stands in pythonSteps.files, and the libraries that "
                                    "it imports are in the builder's and in the server's image")
        side, name = self._names[do]
        data = ("; inputs are made up where spec.accuracy.evaluation gives none" if do == "before" else "")
        return UserError("StepInvalid", f"{name} fails: {problem}", field=f"{FIELD}.{side}", value=name,
                         remedy=f"mend the function{data}")


def _described(steps: PythonSteps, own: Interface, seen: Interface) -> dict[str, Any]:
    return {"preprocess": steps.preprocess, "postprocess": steps.postprocess,
            "takes": dict(map(_tensor, own.inputs)), "answers": dict(map(_tensor, seen.outputs))}


def _tensor(spec: TensorSpec) -> tuple[str, dict[str, Any]]:
    return spec.name, {"dtype": spec.dtype, "shape": [size if isinstance(size, int) else -1 for size in spec.shape]}


def _laid_out(steps: PythonSteps, described: Mapping[str, Any], folder: Path, workspace: Path) -> dict[str, Path]:
    """As they lie where a server runs them, so that a function finds here what it finds there, and no more."""
    root = workspace / "own-steps"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    files = {OWN_STEPS_FILE: root / OWN_STEPS_FILE}
    files[OWN_STEPS_FILE].write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    for name in files_of(steps):
        target = files[f"{program.FOLDER}/{name}"] = root / program.FOLDER / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name, target)
    return files


def _environment(home: Path) -> dict[str, str]:
    return {**{name: os.environ[name] for name in _PASSED_ON if name in os.environ}, "HOME": str(home),
            "CUDA_VISIBLE_DEVICES": ""}


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
