"""The process that runs the user's functions in a build: ``python3 -I own_steps_worker.py PROGRAM FOLDER PATH…``.

PROGRAM is ``pod/python_model/own_steps.py``, FOLDER an empty one, and PATH where the builder finds its libraries. The
process has nothing of the builder's environment. The build is at the other end of the socket that is its input and its
output, and may be in another container.

A message is a line of JSON, and as many bytes as its ``size`` says.
"""

from __future__ import annotations

import ctypes
import importlib.util
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

# linux/prctl.h
_PR_SET_PDEATHSIG = 1
# Of a message: what is larger is none of this program's.
MOST_HEAD, MOST_BODY = 1 << 16, 4 << 30
FILE = "own_steps.json"


class Reads(Protocol):
    def readline(self, most: int, /) -> bytes: ...

    def read(self, size: int, /) -> bytes: ...


class Writes(Protocol):
    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> None: ...


def send(writer: Writes, head: Mapping[str, Any], body: bytes = b"") -> None:
    writer.write(json.dumps({**head, "size": len(body)}).encode() + b"\n")
    writer.write(body)
    writer.flush()


def receive(reader: Reads) -> tuple[dict[str, Any], bytes] | None:
    """None once the other side has ended. Raises ValueError for what is no message: the other side may be run by the
    user's code."""
    line = reader.readline(MOST_HEAD)
    if not line:
        return None
    head = json.loads(line)
    size = head.pop("size", None) if isinstance(head, dict) else None
    if not isinstance(size, int) or not 0 <= size <= MOST_BODY:
        raise ValueError(f"a message of {size!r} bytes")
    body = reader.read(size)
    return (head, body) if len(body) == size else None


def packed(arrays: Mapping[str, Any]) -> bytes:
    """In files of NumPy names of arrays begin with ``=``, as NumPy has some of its own. Texts travel as NumPy's own
    strings, as an array of objects would be pickled."""
    import numpy as np

    found = io.BytesIO()
    np.savez(found, **{f"={name}": array.astype(np.str_) if array.dtype.kind == "O" else array
                       for name, array in arrays.items()})
    return found.getvalue()


def unpacked(body: bytes) -> dict[str, Any]:
    """Raises ValueError and what :mod:`zipfile` raises."""
    import numpy as np

    with np.load(io.BytesIO(body), allow_pickle=False) as file:
        found = {name[1:]: file[name] for name in file.files}
    return {name: array.astype(np.object_) if array.dtype.kind == "U" else array for name, array in found.items()}


def main(program: str, folder: str, *path: str) -> None:
    """In two processes: the first tells how the second ended, whatever the user's code did to it."""
    _end_with_parent()
    errors = Path(folder, "errors.log")
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        lines = errors.read_text(errors="replace").strip().splitlines()
        if code:
            with os.fdopen(1, "wb") as writer:
                send(writer, {"ended": f"{code}{': ' + lines[-1][:300] if lines else ''}"})
        return
    _end_with_parent()
    answers = os.fdopen(os.dup(1), "wb")
    descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for printed in (1, 2):
        os.dup2(descriptor, printed)
    sys.path += [entry for entry in path if entry and entry not in sys.path]
    _answer(program, Path(folder, "own"), answers)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _answer(program: str, folder: Path, answers: Writes) -> None:
    steps: Any = None
    while (asked := receive(sys.stdin.buffer)) is not None:
        head, body = asked
        if head["do"] == "keep":
            target = folder / head["name"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(body)
            continue
        try:
            if head["do"] == "open":
                steps, made = _loaded(program).OwnSteps(folder / FILE), b""
            else:  # before or behind
                made = packed(getattr(steps, head["do"])(unpacked(body)))
            answer = {}
        except MemoryError:
            raise
        except BaseException as error:  # whatever the user's code raises, exits with included
            answer, made = {"error": _words(error, folder)}, b""
        send(answers, answer, made)


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
    message = text if kind == "StepError" else f"{kind}: {text}" if text else kind
    return f"{message}{_place(error.__cause__ or error, folder)}"[:600]


def _place(error: BaseException, folder: Path) -> str:
    files = folder / "own_steps"
    frames = [(Path(one.filename), one.lineno) for one in traceback.extract_tb(error.__traceback__)
              if Path(one.filename).is_relative_to(files)]
    return f" ({frames[-1][0].relative_to(files)}, line {frames[-1][1]})" if frames else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
