"""What sequences begin with, out of ``.npy`` files in the source's folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from enginewright_builder.contract import Interface, StateTensor, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.shapes import shape_text
from enginewright_builder.tensors import Array

_FIELD = "spec.interface.sequenceBatching"
# Numbers of one state. They stand in the engine's documents.
MOST_NUMBERS = 1 << 16
_LARGEST_FILE = 16 * MOST_NUMBERS


def with_files(whole: Interface, folder: Path) -> Interface:
    """``whole``, of requests of one sequence each, with what the files in ``folder`` hold. Raises :class:`UserError`
    ``InterfaceInvalid``."""
    how, inputs = whole.sequence_batching, {spec.name: spec for spec in whole.inputs}
    if how is None:
        return whole
    state = tuple(_read(one, inputs[one.input_name], folder, f"{_FIELD}.state[{index}].dataFile")
                  if one.data_file else one for index, one in enumerate(how.state))
    return dataclasses.replace(whole, sequence_batching=dataclasses.replace(how, state=state))


def check_folder(whole: Interface, source: Path) -> None:
    """A file beside a source that is a file would not count as a part of it. Raises :class:`UserError`
    ``InterfaceInvalid``."""
    named = [(index, one.data_file) for index, one in enumerate(
        whole.sequence_batching.state if whole.sequence_batching else ()) if one.data_file]
    if named and not source.is_dir():
        raise UserError("InterfaceInvalid", f"{named[0][1]} stands in the source's folder, and spec.source.uri names "
                        "one file", field=f"{_FIELD}.state[{named[0][0]}].dataFile", value=named[0][1],
                        remedy="put both into a folder, and name the folder in spec.source.uri")


def _read(one: StateTensor, spec: TensorSpec, folder: Path, field: str) -> StateTensor:
    def invalid(message: str, remedy: str) -> UserError:
        return UserError("InterfaceInvalid", f"{one.data_file}: {message}", field=field, value=one.data_file,
                         remedy=remedy)

    expected = f"{spec.dtype} {shape_text(spec.shape)}"
    write = f"write it with numpy.save, as {expected}"
    path = folder / one.data_file
    if path.name != one.data_file or not path.is_file():
        raise invalid("is no file in the source's folder", "put it beside the .onnx file, or leave dataFile out")
    if path.stat().st_size > _LARGEST_FILE:
        raise invalid(f"has more than {_LARGEST_FILE} bytes", "begin with zeros, or with less state")
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise invalid(f"cannot be read: {error}", write) from error
    if not isinstance(array, np.ndarray) or array.dtype.name != spec.dtype or array.shape != spec.shape:
        kind = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else "an archive"
        raise invalid(f"is {kind}, and state {one.input_name!r} is {expected}", write)
    if not 0 < array.size <= MOST_NUMBERS or not np.isfinite(array).all():
        raise invalid(f"has no numbers, more than {MOST_NUMBERS}, or NaN", write)
    return dataclasses.replace(one, begins=tuple(map(float, array.ravel())))
