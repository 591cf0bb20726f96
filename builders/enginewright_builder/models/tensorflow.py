"""SavedModels and files of Keras: TensorFlow, in a process of its own, converts them to ONNX and answers as the
reference. All else is done with the ONNX.

TensorFlow is in one optional builder image alone, in a folder of its own, so that the builder's other libraries are
those of every other image.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from enginewright_builder.constants import constants_of
from enginewright_builder.contract import Interface
from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.models import tensorflow_worker
from enginewright_builder.models.onnx import OnnxModel, load_onnx
from enginewright_builder.models.onnx_tidy import save
from enginewright_builder.onnx_interface import written_interface
from enginewright_builder.onnx_names import rename_values
from enginewright_builder.session_runner import call_by_call
from enginewright_builder.shapes import DTYPES, STRING, takes_batches
from enginewright_builder.sources.keras_file import check_keras
from enginewright_builder.sources.saved_model import (
    GRAPH,
    SERVING,
    WEIGHTS,
    check_saved_model,
    serving_signature,
    signatures,
)
from enginewright_builder.sources.tensorflow_packages import KERAS, SAVED_MODEL, packages
from enginewright_builder.system import available_cpus
from enginewright_builder.tensors import Array, Tensors, count

_WORDS = {SAVED_MODEL: "SavedModel", KERAS: "Keras model"}
_FIELD = "spec.source.uri"
# What tf2onnx 1.17 writes; newer ones of ONNX's opsets it does not know.
OPSET = 18
_KILLED = -9
# What the process gets of this one's environment: no credentials of sources and stores.
_PASSED_ON = ("PATH", "TMPDIR", "LANG", "LD_LIBRARY_PATH")


def load_tensorflow(path: Path, kind: str, interface: Interface | None, device: str = "cpu",
                    workspace: Path | None = None) -> TensorflowModel:
    """``workspace`` is where the ONNX is written. Raises :class:`UserError` ``TensorflowMissing``, ``ExportFailed``,
    ``InterfaceInvalid``, what the checks of sources do, and what ONNX sources do."""
    folder = workspace or path.parent
    folder.mkdir(parents=True, exist_ok=True)
    worker = Worker(path, kind, folder)
    graph = folder / f"{path.stem}.converted.onnx"
    _convert(worker, graph, kind)
    values = constants_of(written_interface(onnx.load(str(graph), load_external_data=False)), interface)
    found = load_onnx(graph, interface, folder, device, called=path.name)
    return TensorflowModel(found, worker, values, name=f"{_WORDS[kind]} as converted, on ONNX Runtime")


class TensorflowModel(OnnxModel):
    """Answers are TensorFlow's; what is timed, and what engines are made of, is the ONNX."""

    def __init__(self, converted: OnnxModel, worker: Worker, values: Mapping[str, Array], *, name: str) -> None:
        """``values`` are of inputs that clients do not send."""
        super().__init__(converted.path, converted.interface, vocabulary=converted.vocabulary,
                         device=converted.device, notes=converted.notes)
        self.name, self._worker, self._values = name, worker, values

    def run(self, inputs: Tensors) -> Tensors:
        if not takes_batches(self.interface):
            return call_by_call(self._ask, inputs)
        fixed = self._worker.fixed_batch(self._values)
        return self._ask(inputs) if not fixed else _in_calls_of(fixed, self._ask, inputs)

    def _ask(self, inputs: Tensors) -> dict[str, Array]:
        answers = self._worker.ask({**inputs, **self._values})
        return {spec.name: answers[spec.name] for spec in self.interface.outputs}


class Worker:
    """TensorFlow with ``path`` open. It ends with this process, or once nothing holds this."""

    def __init__(self, path: Path, kind: str, folder: Path) -> None:
        signature = SERVING
        if kind == SAVED_MODEL:
            check_saved_model(path)
            signature = serving_signature(path, signatures(path))
        else:
            check_keras(path)
        self._folder = Path(tempfile.mkdtemp(prefix="tensorflow-", dir=folder))
        self._errors = self._folder / "errors.log"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", tensorflow_worker.__file__, str(packages())], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, text=True, env=_environment(self._folder))
        weakref.finalize(self, _end, self._process)
        self._numbers = itertools.count()
        self.path = path
        source = _only_checked(path, self._folder) if kind == SAVED_MODEL else path.resolve()
        opened = self._ask("open", path=str(source), kind=kind, signature=signature, work=str(self._folder),
                           threads=available_cpus())
        if "error" in opened:
            raise UserError("SourceCorrupt", f"TensorFlow cannot load {path.name}: {opened['error']}", field=_FIELD,
                            value=path, remedy="save it again with TensorFlow or Keras of this image's release, or an "
                                               "older one")
        self.inputs, self.outputs = opened["inputs"], opened["outputs"]
        for spec in self.inputs:
            _check_shape(spec)
        for spec in (*self.inputs, *self.outputs):
            _check_type(spec)

    def fixed_batch(self, constant: Collection[str] = ()) -> int:
        """How many samples a call has to hold; 0 where that is free. ``constant`` inputs hold none."""
        return next((int(spec["shape"][0]) for spec in self.inputs
                     if spec["name"] not in constant and spec["shape"] and spec["shape"][0]), 0)

    def convert(self, target: Path) -> dict[str, dict[str, str]]:
        """Writes ONNX. Its inputs and outputs by what the signature calls each. Raises :class:`UserError`
        ``ExportFailed``."""
        answer = self._ask("convert", target=str(target), opset=OPSET)
        if "error" in answer:
            raise UserError("ExportFailed", f"tf2onnx cannot convert {self.path.name} to ONNX: {answer['error']}",
                            field=_FIELD, value=self.path,
                            remedy="leave the operators that it names out of the forward pass, or give ONNX")
        return {side: answer[side] for side in ("inputs", "outputs")}

    def ask(self, inputs: Tensors) -> dict[str, Array]:
        """TensorFlow's own answers to one call. A number without a dimension comes and goes as a list of one. Raises
        :class:`UserError` ``UnsupportedModel``."""
        number = next(self._numbers)
        sent, answered = (self._folder / f"{side}-{number}.npz" for side in ("inputs", "outputs"))
        np.savez(sent, **{f"array_{index}": inputs[spec["name"]].reshape(()) if spec["shape"] == [] else
                          inputs[spec["name"]] for index, spec in enumerate(self.inputs)})
        try:
            answer = self._ask("run", inputs=str(sent), outputs=str(answered))
            if "error" in answer:
                raise UserError("UnsupportedModel", f"TensorFlow fails on inputs of {self.path.name}'s own shapes: "
                                f"{answer['error']}", field=_FIELD, value=self.path,
                                remedy="write the sizes that it takes into spec.interface.inputs")
            with np.load(answered, allow_pickle=False) as file:
                return {spec["name"]: np.atleast_1d(file[f"array_{index}"]) for index, spec in enumerate(self.outputs)}
        finally:
            for path in (sent, answered):
                path.unlink(missing_ok=True)

    def _ask(self, do: str, **arguments: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise self._ended(do)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self, do: str) -> Exception:
        code = self._process.wait()
        if code == _KILLED:
            return TransientError("OutOfMemory", "the builder ran out of memory while TensorFlow had the model open",
                                  remedy="give the build more memory: the source is in memory twice")
        lines = self._errors.read_text(errors="replace").strip().splitlines() or ["it does not say why"]
        return UserError("UnsupportedModel", f"TensorFlow ended with status {code} while it was to {do} "
                         f"{self.path.name}: {lines[-1][:300]}", field=_FIELD, value=self.path,
                         remedy="load it in TensorFlow yourself and export it again, or give ONNX")


def _environment(home: Path) -> dict[str, str]:
    """Products in full and in one order: TensorFlow's oneDNN kernels round otherwise from machine to machine."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed, "HOME": str(home), "KERAS_HOME": str(home), "KERAS_BACKEND": "tensorflow",
            "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0",
            "PYTHONDONTWRITEBYTECODE": "1"}


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _only_checked(source: Path, folder: Path) -> Path:
    """A folder that has of ``source`` the weights, and a copy of the graph, which no one changes once it was looked at.
    Raises :class:`UserError` where it was changed before."""
    view = folder / "saved-model"
    (view / WEIGHTS).mkdir(parents=True)
    for file in (source / WEIGHTS).glob("variables.*"):
        (view / WEIGHTS / file.name).symlink_to(file.resolve())
    shutil.copyfile(source / GRAPH, view / GRAPH)
    check_saved_model(view)
    return view


def _check_shape(spec: Mapping[str, Any]) -> None:
    if spec["shape"] is None:
        raise UserError("InterfaceInvalid", f"{spec['name']!r} has no shape, not even a number of dimensions",
                        field=_FIELD, value=spec["name"], remedy="export it with tf.TensorSpec(shape, dtype) for every "
                                                                 "input; sizes may be None")


def _check_type(spec: Mapping[str, Any]) -> None:
    if spec["dtype"] not in DTYPES or spec["dtype"] == STRING:
        raise UserError("InterfaceInvalid", f"{spec['name']!r} is of type {spec['dtype']}, which is not converted",
                        field=_FIELD, value=f"{spec['name']}: {spec['dtype']}",
                        remedy=f"export the model with one of {', '.join(name for name in DTYPES if name != STRING)}")


def _convert(worker: Worker, graph: Path, kind: str) -> None:
    wanted = worker.convert(graph)
    names = {old: new for side in wanted.values() for old, new in side.items()}
    unused = [spec["name"] for spec in worker.inputs if spec["name"] not in names.values()]
    if unused:
        raise UserError("UnsupportedModel", f"the {_WORDS[kind]} does not use its input {', '.join(unused)}",
                        field=_FIELD, value=", ".join(unused), remedy="export it without that input")
    both = {spec["name"] for spec in worker.inputs} & {spec["name"] for spec in worker.outputs}
    if both:
        shared = ", ".join(sorted(both))
        raise UserError("InterfaceInvalid", f"the {_WORDS[kind]} calls both an input and an output {shared}",
                        field=_FIELD, value=shared, remedy="export it with names of their own")
    model = onnx.load(str(graph))
    _check_operators(model, worker.path)
    rename_values(model.graph, names)
    save(model, graph)


def _check_operators(model: onnx.ModelProto, source: Path) -> None:
    """tf2onnx leaves what it does not know as it is."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    unknown = sorted({node.op_type for node in model.graph.node
                      if not onnx.defs.has(node.op_type, versions.get(node.domain, 1), node.domain)})
    if unknown:
        raise UserError("UnsupportedOperator", f"{source.name} has operators of TensorFlow that ONNX does not have: "
                        f"{', '.join(unknown[:8])}", field=_FIELD, value=unknown[0],
                        remedy="write the forward pass without them, or give ONNX")


def _in_calls_of(fixed: int, ask: Callable[[Tensors], dict[str, Array]], inputs: Tensors) -> dict[str, Array]:
    """Of a signature with a fixed batch that ONNX is free of: the last call is filled up."""
    samples = count(inputs)
    rows = np.arange(-(-samples // fixed) * fixed) % samples
    calls = [ask({name: array[rows[start:start + fixed]] for name, array in inputs.items()})
             for start in range(0, len(rows), fixed)]
    return {name: np.concatenate([call[name] for call in calls])[:samples] for name in calls[0]}
