"""Operators that import nothing: to import what it runs takes an operator two seconds of a processor, as often as tests
start one.

``python -m support.operator_forks SOCKET`` imports that, and forks an ``enginewright`` for each connection, as
:mod:`support.vllm_forks` does.
"""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from support.vllm_forks import READY, forked

# What an operator has imported once it leads.
MODULES = ("enginewright.cli", "enginewright.runtime", "enginewright.reconcile.leadership", "kopf",
           "kubernetes.aio.client")


@functools.cache
def operator_forks() -> Path:
    """The socket of the one of this process, with which it ends. Not to be called in another thread than the main one:
    the kernel would end it with that thread."""
    socket = Path(tempfile.mkdtemp(prefix="enginewright-forks-")) / "socket"
    process = subprocess.Popen([sys.executable, "-m", __name__, str(socket)], text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, env=environment())
    assert process.stdout is not None
    assert any(line == f"{READY}\n" for line in process.stdout), "it ended before it was ready"
    return socket


def environment() -> dict[str, str]:
    """This process's, with the folders that it finds modules in."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def main() -> int:
    for name in MODULES:
        importlib.import_module(name)
    words = forked(sys.argv[1])
    from enginewright.cli import main as run

    return run(words)


if __name__ == "__main__":
    sys.exit(main())
