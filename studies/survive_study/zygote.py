"""Starts operators by fork, so that a thousand starts cost no thousand imports. Each is a process of its own.

Reads lines of JSON from standard input, ``{"arguments": [...], "log": PATH}``, and answers each with a process id.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
# What a run imports only once it has begun.
LATE = ("enginewright.cli", "enginewright.runtime", "enginewright.reconcile.leadership", "kopf",
        "kubernetes.aio.client")


def main() -> None:
    for name in LATE:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, _reap)
    for line in sys.stdin:
        wanted = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(wanted["arguments"], wanted["log"])
        print(child, flush=True)


def _become(arguments: Sequence[str], log: str) -> None:
    """Never returns."""
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # none outlives the study
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, target in ((0, nothing), (1, sink), (2, sink)):
            os.dup2(target, number)
        from enginewright.cli import main as run

        code = run(arguments)
    finally:
        os._exit(code)


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
