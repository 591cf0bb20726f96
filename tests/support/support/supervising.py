"""The program that runs vLLM in a server's container, as a process here: left as a build leaves it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from enginewright_builder.generate.supervised import Supervised
from enginewright_builder.supervise import leave

PATIENCE_SECONDS = 240


def start(place: Path, command: Sequence[str], model: Path,
          environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """``place`` has the folders ``control`` and ``witness``. Its environment is this process's and ``environment``."""
    leave(place / "program")
    for name in ("control", "witness"):
        (place / name).mkdir(exist_ok=True)
    words = [sys.executable, "-I", "-S", str(place / "program"), f"--control={place / 'control'}",
             f"--witness={place / 'witness'}", f"--model={model}", "--", *command]
    return subprocess.Popen(words, env={**os.environ, **(environment or {})}, cwd=place)


@contextmanager
def supervised(place: Path, command: Sequence[str], model: Path,
               environment: Mapping[str, str] | None = None) -> Iterator[Supervised]:
    """It runs until this is left, which waits until it and what it started have ended."""
    process = start(place, command, model, environment)
    try:
        yield Supervised(place / "control", place / "witness")
    finally:
        process.terminate()
        try:
            process.wait(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
