"""Models of TensorFlow and Keras, made where TensorFlow is: in a process of its own, with the packages that the image
builder-tensorflow has."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from enginewright_builder.sources.tensorflow_packages import PACKAGES_VARIABLE
from support.inputs import tensorflow_models

ROOT = Path(__file__).resolve().parents[4]


@cache
def packages() -> str:
    """Installs them where they are not, and lets builds of this process find them."""
    done = subprocess.run([str(ROOT / "hack" / "dev" / "tensorflow.sh")], check=True, stdout=subprocess.PIPE, text=True)
    os.environ[PACKAGES_VARIABLE] = done.stdout.strip()
    return done.stdout.strip()


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="tensorflow-models-")
    done = subprocess.run([sys.executable, "-I", "-S", tensorflow_models.__file__, packages(), folder.name],
                          check=False, capture_output=True, text=True,
                          env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "KERAS_HOME": folder.name})
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def all_models() -> Path:
    """All of them are made at once, and once: TensorFlow takes seconds to import."""
    return Path(_folder().name)


def made(make: Callable[[Path], None], name: str = "model") -> Callable[[Path], Path]:
    def path(folder: Path) -> Path:
        del folder
        return all_models() / make.__name__ / name

    return path
