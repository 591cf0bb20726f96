"""In the place of ``subprocess`` where TensorFlow's worker is started: forks of a process that has imported TensorFlow,
which takes a worker most of its three seconds."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import IO, Self

from support import tensorflow_forks

__all__ = ["PIPE", "Forks"]
# Words of the command: `python3 -I -S`, then the worker's file and the folder with its packages.
INTERPRETER = 3


class Fork:
    """As much of :class:`subprocess.Popen` as the worker's owner uses, of a child of another process."""

    def __init__(self, connection: socket.socket) -> None:
        with connection:
            self.stdin, self.stdout = connection.makefile("w"), connection.makefile("r")
        self._pid = 0

    def tell(self, environment: Mapping[str, str], errors: str) -> None:
        self.stdin.write(json.dumps({"environment": dict(environment), "errors": errors}) + "\n")
        self.stdin.flush()
        self._pid = int(self.stdout.readline())

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        """Until it has ended. With which status only its parent knows."""
        with contextlib.suppress(ConnectionError, ValueError):
            self.stdout.read()
        return 0


class Forks:
    """The process that forks, from the first worker on until the block ends."""

    PIPE = PIPE

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tensorflow-forks-")
        self._socket = Path(self._folder.name) / "socket"
        self._process: subprocess.Popen[str] | None = None

    def Popen(self, words: Sequence[str], *, env: Mapping[str, str], stderr: IO[bytes],  # noqa: N802
              **_: object) -> Fork:
        if self._process is None:
            self._process = self._begun(words, env)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._socket))
        fork = Fork(connection)
        fork.tell(env, stderr.name)
        return fork

    def _begun(self, words: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
        *interpreter, worker, packages = words
        process = subprocess.Popen(
            [*interpreter[:INTERPRETER], tensorflow_forks.__file__, packages, worker, str(self._socket)], text=True,
            env={**env, "HOME": self._folder.name, "KERAS_HOME": self._folder.name}, stdin=subprocess.DEVNULL,
            stdout=PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == f"{tensorflow_forks.READY}\n", "it ended before it was ready"
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._folder.cleanup()
