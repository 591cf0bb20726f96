"""The program of :mod:`support.warm_vllm`, with vLLM's packages on its path. It starts no thread and computes nothing
before it forks: neither would come along.

``python -s -S vllm_forks.py --forks SOCKET`` imports vLLM, says so on stdout, and forks a ``vllm`` for each connection.
A connection sends a line with what to run, and reads the process id, and the status once it has ended. With other words
it is ``vllm`` itself, whose processes are forks of its first one.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

# What a server has imported once it is ready.
MODULES = ("vllm.entrypoints.cli.benchmark.main", "vllm.entrypoints.cli.launch", "vllm.entrypoints.cli.openai",
           "vllm.entrypoints.cli.run_batch", "vllm.entrypoints.cli.serve",
           "vllm.entrypoints.openai.api_server", "vllm.v1.engine.async_llm",
           "vllm.v1.engine.core", "vllm.v1.worker.cpu_worker", "vllm.model_executor.models.llama")
FORKS, READY = "--forks", "ready"
# linux/prctl.h
_PR_SET_PDEATHSIG = 1


def main(words: Sequence[str]) -> None:
    # The engine and its workers would each import all of it once more.
    system: Any = importlib.import_module("vllm.utils.system_utils")
    system.get_mp_context = lambda: multiprocessing.get_context("fork")
    for name in MODULES:
        importlib.import_module(name)
    vllm: Any = importlib.import_module("vllm.entrypoints.cli.main")
    if words[0] == FORKS:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        gc.collect()
        gc.freeze()
        _become(_asked(words[1]))
    vllm.main()


def _asked(path: str) -> dict[str, Any]:
    """Returns in forks alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print(READY, flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    with connection.makefile() as lines:
                        asked: dict[str, Any] = json.loads(lines.readline())
                    if (child := os.fork()) == 0:
                        return asked
                    _tell(connection, child)


def _tell(connection: socket.socket, child: int) -> None:
    """Of a fork that waits for the other one. Does not return."""
    connection.sendall(f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become(asked: dict[str, Any]) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.argv = ["vllm", *asked["words"]]


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file
    main(sys.argv[1:])
