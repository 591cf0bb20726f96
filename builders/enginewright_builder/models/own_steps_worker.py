"""The process that runs the user's functions in a build: ``python3 -I own_steps_worker.py PROGRAM FILE PATH…``, PROGRAM
being ``pod/python_model/own_steps.py``, FILE an ``own_steps.json``, and PATH where the builder finds its libraries. It
has nothing of the builder's environment; it reads and writes JSON lines, and arrays in files.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

# linux/prctl.h
_PR_SET_PDEATHSIG = 1


def main(program: str, file: str, *path: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    sys.path += [entry for entry in path if entry and entry not in sys.path]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the functions print
    steps: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if asked["do"] == "open":
                steps = _loaded(program).OwnSteps(Path(file))
            else:
                _run(steps, **asked)
            told = {}
        except MemoryError:
            raise
        except BaseException as error:  # whatever the user's code raises, exits with included
            told = {"error": _words(error, Path(file).parent)}
        answers.write(json.dumps(told) + "\n")
        answers.flush()


def _run(steps: Any, do: str, inputs: str, outputs: str) -> None:
    """``do``: ``before`` or ``behind``. In files the names of arrays begin with ``=``, as NumPy has some of its own.
    Texts travel as NumPy's own strings, as an array of objects would be pickled."""
    import numpy as np

    with np.load(inputs, allow_pickle=False) as file:
        given = {name[1:]: file[name].astype(np.object_) if file[name].dtype.kind == "U" else file[name]
                 for name in file.files}
    found = getattr(steps, do)(given)
    np.savez(outputs, **{f"={name}": array.astype(np.str_) if array.dtype.kind == "O" else array
                         for name, array in found.items()})


def _loaded(program: str) -> Any:
    spec = importlib.util.spec_from_file_location("enginewright_own_steps", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _words(error: BaseException, folder: Path) -> str:
    """With the last line of the user's files that it came through."""
    text, kind = " ".join(str(error).split()), type(error).__name__
    said = text if kind == "StepError" else f"{kind}: {text}" if text else kind
    return f"{said}{_place(error.__cause__ or error, folder)}"[:600]


def _place(error: BaseException, folder: Path) -> str:
    files = folder / "own_steps"
    frames = [(Path(one.filename), one.lineno) for one in traceback.extract_tb(error.__traceback__)
              if Path(one.filename).is_relative_to(files)]
    return f" ({frames[-1][0].relative_to(files)}, line {frames[-1][1]})" if frames else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
