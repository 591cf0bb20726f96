"""The wheel and the source archive, by hatchling out of the lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def build(source: Path, output: Path, epoch: int) -> list[Path]:
    """Raises ``subprocess.CalledProcessError`` with what hatchling says on standard error."""
    before = set(output.glob("*"))
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run([sys.executable, "-m", "hatchling", "build", "--directory", output], cwd=source, env=environment,
                   check=True, capture_output=True, text=True, timeout=600)
    return sorted(set(output.glob("*")) - before)
