"""A source behind and before functions of the user's own, which stand in its folder.

They run in a process of their own (``own_steps_process.py``): what a function breaks, reads or ends is no part of the
build. Engines get them as they are (``engines/own_steps.py``), and answer what clients get.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enginewright_builder.contract import Interface, PythonSteps, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.models.base import SourceModel, Tokenize, TorchProgram
from enginewright_builder.models.own_steps_process import Process
from enginewright_builder.models.wrapped import Wrapped
from enginewright_builder.own_steps import FIELD, OWN_STEPS_FILE, answered, files_of, sent
from enginewright_builder.pod.python_model import own_steps as program
from enginewright_builder.shapes import takes_batches
from enginewright_builder.tensors import Call, Tensors


class OwnStepped(Wrapped):
    """``inner`` asked with what clients send and answering what they get, as ``stated`` says. ``folder`` is the
    source's. ``files`` are those of an engine, by name, below ``workspace``. ``runner`` is the socket of who runs the
    functions, None for a child of this process. Raises :class:`UserError` ``StepInvalid`` for functions that do not
    run, and ``InterfaceInvalid`` for a source without a batch."""

    def __init__(self, inner: SourceModel, stated: Interface, folder: Path, workspace: Path,
                 runner: Path | None = None) -> None:
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
        self.process = Process(self.files, workspace, runner)

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
