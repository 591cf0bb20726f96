"""vLLM and SmolLM2 for tests: made where they are not, and found by whatever runs in this process."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

from enginewright_builder.generate.packages import PACKAGES_VARIABLE

ROOT = Path(__file__).resolve().parents[3]


@cache
def vllm() -> str:
    os.environ[PACKAGES_VARIABLE] = _printed("vllm.sh")
    return os.environ[PACKAGES_VARIABLE]


@cache
def smollm2() -> Path:
    """A Hugging Face folder, not to be written to."""
    return Path(_printed("smollm2.sh"))


def _printed(script: str) -> str:
    done = subprocess.run([str(ROOT / "hack" / "dev" / script)], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()
