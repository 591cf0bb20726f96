"""Functions of the user's own before and behind the engine: what may be declared, and whether the source has it. No
code of the source runs here.

``models/own_steps.py`` is the source behind them, ``engines/own_steps.py`` an engine,
``pod/python_model/own_steps.py`` runs them.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from enginewright_builder.contract import BuildRequest, Interface, PythonSteps, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.pod.python_model.own_steps import FOLDER
from enginewright_builder.shapes import BATCH, DTYPES, STRING, checked, shape_text
from enginewright_builder.sources.formats import Located

FIELD = "spec.interface.pythonSteps"
# In an engine's folder: what runs, beside the folder with the user's files.
OWN_STEPS_FILE = "own_steps.json"
_NAME = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*"
_FILE = re.compile(rf"{_NAME}(/{_NAME})*")
_FUNCTION = re.compile(rf"({_FILE.pattern}\.py):([A-Za-z_][A-Za-z0-9_]*)")


def is_own(name: str) -> bool:
    """Whether a file of an engine is of the user's functions."""
    return name == OWN_STEPS_FILE or name.startswith(f"{FOLDER}/")


def of_source(interface: Interface | None) -> Interface | None:
    """What is stated of the source itself, which tells what it takes and answers where functions stand before or behind
    it; None where nothing is."""
    if interface is None or interface.python_steps is None:
        return interface
    steps = interface.python_steps
    left = dataclasses.replace(interface, python_steps=None, inputs=() if steps.preprocess else interface.inputs,
                               outputs=() if steps.postprocess else interface.outputs)
    return left if left != Interface() else None


def sent(interface: Interface | None) -> tuple[TensorSpec, ...]:
    """What clients send to a function, the batch in front; empty where they send what the source takes."""
    if interface is None or interface.python_steps is None or not interface.python_steps.preprocess:
        return ()
    return checked(Interface(inputs=interface.inputs)).inputs


def answered(interface: Interface | None) -> tuple[TensorSpec, ...]:
    """What clients get of a function, the batch in front; empty where they get what the source answers."""
    if interface is None or interface.python_steps is None or not interface.python_steps.postprocess:
        return ()
    return tuple(dataclasses.replace(spec, shape=(BATCH, *spec.shape[1:])) for spec in interface.outputs)


def folder_of(located: Located) -> Path:
    return located.path if located.path.is_dir() else located.path.parent


def files_of(steps: PythonSteps) -> list[str]:
    """All that lies beside a function wherever it runs, by its path in the source's folder."""
    functions = [name.partition(":")[0] for name in (steps.preprocess, steps.postprocess) if name]
    return list(dict.fromkeys((*functions, *steps.files)))


def check_request(request: BuildRequest) -> None:
    """What cannot stand beside functions of the user's own. The operator refuses these, too; a build by hand has no
    operator. Raises :class:`UserError` ``StepInvalid``."""
    interface = request.interface
    if interface is None or interface.python_steps is None:
        return
    beside = (("spec.interface.sequenceBatching", interface.sequence_batching is not None),
              ("spec.interface.padding", interface.padding is not None), ("spec.quality", request.keep_reference))
    for field, given in beside:
        if given:
            raise _invalid("functions of your own are not run there yet", field, field.rpartition(".")[2],
                           "leave it out, or pythonSteps")
    if request.accuracy.task and any(spec.dtype == STRING for spec in answered(interface)):
        raise _invalid("labels are held against numbers, and a function answers texts", "spec.accuracy.task",
                       request.accuracy.task.metric, "leave it out, or let the function answer numbers")
    if request.signing_keys and not request.steps_socket:
        raise UserError("RequestInvalid", "this Job signs engines, and has no container without the key to run "
                        "functions in", field=FIELD, value="",
                        remedy="use an operator of the release of the builder image")
    backends = request.runtime.backends
    if "python" not in backends:
        raise _invalid(f"the server has no Python backend, only {', '.join(backends) or 'none'}", FIELD,
                       ", ".join(backends), "name a server image with it in spec.serving.image")


def check_steps(path: Path, located: Located, interface: Interface | None) -> None:
    """``path`` is the source as it was fetched. Raises :class:`UserError` ``StepInvalid`` or ``InterfaceInvalid``."""
    if interface is None or interface.python_steps is None:
        return
    steps = interface.python_steps
    if not (steps.preprocess or steps.postprocess):
        raise _invalid("no function is named", FIELD, "{}", "write preprocess or postprocess, such as steps.py:tokens")
    if not path.is_dir():
        raise _invalid("functions lie in the source's folder, and the source is one file", FIELD, path.name,
                       "put the model and the file with the function into one folder, and name that in spec.source.uri")
    for field, name in _functions(steps):
        _check_function(folder_of(located), name, field)
    for index, name in enumerate(steps.files):
        _check_file(folder_of(located), name, f"{FIELD}.files[{index}]", name)
    _check_tensors(interface, steps)


def _functions(steps: PythonSteps) -> Iterator[tuple[str, str]]:
    for side in ("preprocess", "postprocess"):
        if name := getattr(steps, side):
            yield f"{FIELD}.{side}", name


def _check_function(folder: Path, name: str, field: str) -> None:
    if (match := _FUNCTION.fullmatch(name)) is None:
        raise _invalid("names no function in a file of the source's folder", field, name,
                       "write FILE.py:FUNCTION, such as steps.py:tokens; FILE is a path below the folder, without ..")
    file, function = match[1], match[3]
    _check_file(folder, file, field, name)
    try:
        tree = ast.parse((folder / file).read_bytes(), filename=file)
    except (SyntaxError, ValueError) as error:
        raise _invalid(f"{file} is not Python of this image's version: {error}", field, name,
                       "mend the file") from error
    if function not in _defined(tree.body):
        known = ", ".join(one.name for one in tree.body if isinstance(one, ast.FunctionDef))
        raise _invalid(f"{file} has no function {function}; it has {known or 'none'}", field, name,
                       "name one of these, or define it at the top of the file")


def _defined(body: Sequence[ast.stmt]) -> Iterator[str]:
    """What the top of a file gives a name to."""
    for one in body:
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            yield one.name
        elif isinstance(one, ast.ImportFrom):
            yield from (entry.asname or entry.name for entry in one.names)
        elif isinstance(one, ast.Assign):
            yield from (target.id for target in one.targets if isinstance(target, ast.Name))


def _check_file(folder: Path, name: str, field: str, value: str) -> None:
    """A link that leaves the folder is refused wherever a source is read."""
    if _FILE.fullmatch(name) is None:
        raise _invalid("is no path below the source's folder", field, value,
                       "write it without .. and without / in front, of letters, digits, '.', '_', '-' and '/'")
    if not (folder / name).is_file():
        raise _invalid(f"the source's folder has no file {name}", field, value,
                       "put it there, or correct the name")


def _check_tensors(interface: Interface, steps: PythonSteps) -> None:
    for side, function, specs in (("inputs", steps.preprocess, interface.inputs),
                                  ("outputs", steps.postprocess, interface.outputs)):
        if not function:
            continue
        what = "send" if side == "inputs" else "get"
        if not specs:
            raise _invalid(f"{function} stands between clients and the model, and what clients {what} is not stated",
                           f"spec.interface.{side}", "[]", "list name, dtype and shape of each, the batch in front")
        for spec in specs:
            _check_tensor(spec, side)
    sent(interface)


def _check_tensor(spec: TensorSpec, side: str) -> None:
    field = f"spec.interface.{side}[{spec.name}]"
    if spec.dtype not in DTYPES:
        raise _invalid(f"{spec.dtype!r} of {spec.name!r} is no tensor type of NumPy and Triton", f"{field}.dtype",
                       spec.dtype, f"use one of {', '.join(DTYPES)}")
    if spec.normalise is not None or spec.preprocess is not None:
        raise _invalid(f"what becomes of input {spec.name!r} is said twice", field, spec.name,
                       "remove its preprocess and normalise, and let the function do that")
    if not spec.shape or isinstance(spec.shape[0], int):
        raise _invalid(f"{spec.name!r} has no batch in front", f"{field}.shape", shape_text(spec.shape),
                       "write for example [batch, 1]")
    if side == "outputs" and (len(spec.shape) < 2 or any(isinstance(size, str) or size < 1 for size in spec.shape[1:])):
        raise _invalid(f"{spec.name!r} has a size that is no number behind the batch, or none", f"{field}.shape",
                       shape_text(spec.shape), "write numbers, such as [batch, 1], and let the function fill up")


def _invalid(message: str, field: str, value: object, remedy: str) -> UserError:
    return UserError("StepInvalid", message, field=field, value=value, remedy=remedy)
