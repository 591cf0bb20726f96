"""Who runs the user's functions, seen from the build: a process of its own, which has nothing of the builder's
environment.

A build by hand starts it. In a Job it runs in a container that mounts nothing of the build: neither the key that
engines are signed with, nor the store, nor what the build leaves (docs/adr/0049-python-steps.md). Functions and arrays
go there and back over a socket, and answers are read as a stranger's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import weakref
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.models import own_steps_worker
from enginewright_builder.models.own_steps_worker import packed, receive, send, unpacked
from enginewright_builder.own_steps import FIELD, OWN_STEPS_FILE
from enginewright_builder.pod.python_model import own_steps as program
from enginewright_builder.tensors import Tensors

# What the process gets of this one's environment: no credentials of sources and stores.
_PASSED_ON = ("PATH", "TMPDIR", "LANG", "LD_LIBRARY_PATH")
# One call of a function: a request that takes longer is no request.
_SECONDS = 120.0


class Process:
    """Runs the functions that ``own_steps.json`` of ``files``, by name, has. ``at`` is the socket of who starts it;
    None: it is a child of this one, which writes into ``folder``. It ends with this process, or once nothing holds
    this. Raises :class:`UserError` ``StepInvalid`` and :class:`TransientError` ``StepsUnreachable``."""

    def __init__(self, files: Mapping[str, Path], folder: Path, at: Path | None = None) -> None:
        steps = json.loads(files[OWN_STEPS_FILE].read_text(encoding="utf-8"))
        self._names = {"before": ("preprocess", steps["preprocess"]), "behind": ("postprocess", steps["postprocess"])}
        connection = _connected(at) if at else self._child(folder)
        connection.settimeout(_SECONDS)
        self._stream = connection.makefile("rwb")
        weakref.finalize(self, _close, connection)
        for name, path in files.items():
            self._send("open", {"do": "keep", "name": name}, path.read_bytes())
        self._ask("open", b"")

    def ask(self, do: str, arrays: Tensors) -> dict[str, np.ndarray[Any, Any]]:
        """``do``: ``before`` or ``behind``."""
        try:
            return unpacked(self._ask(do, packed(arrays)))
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise self._failed(do, f"its process answered what are no arrays ({type(error).__name__})") from error

    def _ask(self, do: str, body: bytes) -> bytes:
        self._send(do, {"do": do}, body)
        try:
            answer = receive(self._stream)
        except TimeoutError as error:
            raise self._failed(do, f"gave no answer within {_SECONDS:.0f} s") from error
        except ConnectionError:
            answer = None
        except ValueError as error:
            raise self._failed(do, f"its process answered {error}") from error
        if answer is None:
            raise self._failed(do, "its process was ended, for lack of memory perhaps")
        head, made = answer
        if "ended" in head:
            raise self._failed(do, f"ended its process with status {str(head['ended'])[:400]}")
        if problem := head.get("error"):
            raise self._failed(do, str(problem)[:600])
        return made

    def _child(self, folder: Path) -> socket.socket:
        ours, theirs = socket.socketpair()
        own = Path(tempfile.mkdtemp(prefix="own-steps-", dir=folder))
        with theirs:
            weakref.finalize(self, _end, _started(theirs, own), own)
        return ours

    def _send(self, do: str, head: Mapping[str, str], body: bytes) -> None:
        """Who has ended already has said so."""
        try:
            with contextlib.suppress(ConnectionError):
                send(self._stream, head, body)
        except TimeoutError as error:
            raise self._failed(do, f"took no request within {_SECONDS:.0f} s") from error

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


def serve(at: Path) -> None:
    """Starts a process for each who connects to the socket ``at``, until this one is ended."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(at))
        listening.listen()
        children: list[subprocess.Popen[bytes]] = []
        while True:
            connection, _ = listening.accept()
            with connection:
                children = [child for child in children if child.poll() is None]
                children.append(_started(connection, Path(tempfile.mkdtemp(prefix="own-steps-"))))


def _connected(at: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(at))
    except OSError as error:
        connection.close()
        raise TransientError("StepsUnreachable", f"the container that runs functions of the source's folder does not "
                             f"answer at {at}: {error.strerror}", field=FIELD, value=str(at),
                             remedy="the Job's pod tells what became of that container") from error
    return connection


def _started(connection: socket.socket, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-B", own_steps_worker.__file__, program.__file__, str(folder), *sys.path],
        stdin=connection.fileno(), stdout=connection.fileno(), cwd=folder, env=_environment(folder))


def _environment(home: Path) -> dict[str, str]:
    return {**{name: os.environ[name] for name in _PASSED_ON if name in os.environ}, "HOME": str(home),
            "CUDA_VISIBLE_DEVICES": ""}


def _close(connection: socket.socket) -> None:
    """Though a file of it is still open: who is at the other end reads no more."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _end(child: subprocess.Popen[bytes], folder: Path) -> None:
    child.kill()
    child.wait()
    shutil.rmtree(folder, ignore_errors=True)
