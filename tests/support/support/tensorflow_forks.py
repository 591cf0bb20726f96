"""The program of :mod:`support.warm_tensorflow`: ``python3 -I -S tensorflow_forks.py PACKAGES WORKER SOCKET``. It
imports TensorFlow out of the folder PACKAGES, says so on stdout, and forks a process for each connection, which runs
the file WORKER with the connection as its standard input and output. It computes nothing before it forks, so that no
thread of TensorFlow's would be missed.

A connection sends a line with what the process gets, and reads its id, and then what it writes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys

MODULES = ("tensorflow", "keras", "tf2onnx.convert", "onnx")
READY = "ready"


def main(packages: str, worker: str, path: str) -> None:
    sys.path.insert(0, packages)
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print(READY, flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    _become(connection)
                    break
    sys.argv = [worker, packages]
    runpy.run_path(worker, run_name="__main__")


def _become(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection.makefile("r", buffering=1) as lines:
        asked = json.loads(lines.readline())
    connection.sendall(f"{os.getpid()}\n".encode())
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.dup2(connection.fileno(), 0)
    os.dup2(connection.fileno(), 1)
    os.dup2(os.open(asked["errors"], os.O_WRONLY | os.O_APPEND), 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
