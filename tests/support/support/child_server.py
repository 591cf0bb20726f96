"""A server of somebody else's as a child process, for the length of a test."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

START_SECONDS = 30.0


@contextlib.contextmanager
def answering_at(address: tuple[str, int], command: Sequence[str | Path], log: Path,
                 environment: Mapping[str, str]) -> Iterator[None]:
    """It takes connections at ``address`` within the block, and has ended after it."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    try:
        _await(process, address, log)
        yield
    finally:
        process.terminate()
        process.wait(20)


def _await(process: subprocess.Popen[bytes], address: tuple[str, int], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError(f"{process.args!r} does not answer: {log.read_text()[-2000:]}")
