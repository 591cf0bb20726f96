"""Runs the functions of the user's own that stand before and behind the engine: in a process of the builder, to hold
every engine against the source end to end, and inside Triton's Python backend, to serve.

Copied beside ``model.py`` into the version folder; it may import only the standard library and NumPy. The user's files
lie in the folder ``own_steps`` there and import what they like.

``own_steps.json`` holds ``preprocess`` and ``postprocess``, each ``FILE.py:FUNCTION`` or empty; ``takes``, the model's
inputs; and ``answers``, what clients get: ``{"name": {"dtype": "int64", "shape": [-1, 8]}}`` with the batch in front.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Function = Callable[[Arrays], Any]
FOLDER = "own_steps"
STRING = "string"


class StepError(ValueError):
    """A function that is not there, or gives what no engine takes and no client gets."""


class OwnSteps:
    """``file`` is an ``own_steps.json``. Raises :class:`StepError` where a function cannot be imported."""

    def __init__(self, file: Path) -> None:
        described = json.loads(file.read_text(encoding="utf-8"))
        folder = file.parent / FOLDER
        # Last: the user's files import each other, and hide no library that the engine needs.
        sys.path.append(str(folder))
        self._names = described["preprocess"], described["postprocess"]
        self._before, self._behind = (_function(folder, name) if name else None for name in self._names)
        self._takes, self._answers = described["takes"], described["answers"]

    @property
    def prepares(self) -> bool:
        """Whether clients send something else than the model takes."""
        return self._before is not None

    @property
    def finishes(self) -> bool:
        """Whether clients get something else than the model answers."""
        return self._behind is not None

    def before(self, inputs: Mapping[str, Any]) -> Arrays:
        """What the model takes of what one client sent; texts come as ``str``. Raises :class:`StepError`,
        ``ValueError`` for texts that are none, and whatever the function raises."""
        assert self._before is not None
        made = self._before({name: _read(name, array) for name, array in inputs.items()})
        return _checked(made, self._takes, _rows(inputs), f"preprocess {self._names[0]}")

    def behind(self, answers: Mapping[str, Any]) -> Arrays:
        """What one client gets of what the model answered. Raises as :meth:`before`."""
        assert self._behind is not None
        made = self._behind(dict(answers))
        return _checked(made, self._answers, _rows(answers), f"postprocess {self._names[1]}")


def _function(folder: Path, name: str) -> Function:
    file, _, function = name.partition(":")
    called = f"{FOLDER}.{file.removesuffix('.py').replace('/', '.')}"
    if (module := sys.modules.get(called)) is None:
        spec = importlib.util.spec_from_file_location(called, folder / file)
        if spec is None or spec.loader is None:
            raise StepError(f"{file} is no file of Python")
        # Registered, or dataclasses in it would not find their own types.
        module = sys.modules[called] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[called]
            raise StepError(f"{file} does not import: {type(error).__name__}: {error}") from error
    found = getattr(module, function, None)
    if not callable(found):
        raise StepError(f"{file} has no function {function}")
    called_with: Function = found
    return called_with


def _rows(arrays: Mapping[str, Any]) -> int:
    return len(next(iter(arrays.values())))


def _read(name: str, array: Any) -> NDArray[Any]:
    """Triton hands texts over as bytes."""
    if array.dtype.kind not in "OSU":
        return np.asarray(array)
    try:
        return _texts(array)
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: {error.reason} at byte {error.start} of a text; send UTF-8") from error


def _texts(array: Any) -> NDArray[Any]:
    found = np.empty(np.shape(array), np.object_)
    for place in np.ndindex(found.shape):
        entry = array[place]
        found[place] = entry.decode() if isinstance(entry, bytes) else str(entry)
    return found


def _checked(made: Any, wanted: Mapping[str, Mapping[str, Any]], rows: int, what: str) -> Arrays:
    """In the order of ``wanted``. Raises :class:`StepError`."""
    if not isinstance(made, Mapping):
        raise StepError(f"{what} gives {type(made).__name__}; return a dict of NumPy arrays by name")
    if set(made) != set(wanted):
        raise StepError(f"{what} gives {_listed(made)}; return {_listed(wanted)}")
    return {name: _fitting(np.asarray(made[name]), wanted[name], rows, f"{what}: {name}") for name in wanted}


def _fitting(array: NDArray[Any], wanted: Mapping[str, Any], rows: int, what: str) -> NDArray[Any]:
    dtype, shape = wanted["dtype"], (rows, *wanted["shape"][1:])
    if array.shape != tuple(own if size < 0 else size for own, size in zip(array.shape, shape, strict=False)) or (
            len(array.shape) != len(shape)):
        expected = ", ".join("any" if size < 0 else str(size) for size in shape)
        raise StepError(f"{what} has the shape {list(array.shape)}; return [{expected}]")
    if dtype == STRING and array.dtype.kind in "OSU":
        return _texts(array)
    if str(array.dtype) != dtype:
        raise StepError(f"{what} is {array.dtype}; return {dtype}")
    return array


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(map(str, names))) or "nothing"
