"""Tests that need a GPU never pass by being skipped."""

from __future__ import annotations

import subprocess
import sys

from support.carried import ROOT


def test_they_fail_where_they_are_asked_for_and_cannot_run() -> None:
    """One stands for all: what says so is a fixture of the whole folder."""
    one = "tests/gpu/test_tensorrt.py::test_a_corrupt_timing_cache_is_ignored_said_and_made_anew"
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", one], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    assert "skipped" not in done.stdout
    assert done.returncode == 0 or "tests/gpu cannot run here: " in done.stdout, done.stdout + done.stderr


def test_none_of_them_has_a_skip() -> None:
    for file in (ROOT / "tests" / "gpu").glob("*.py"):
        assert [word for word in ("pytest.skip(", "skipif", "importorskip") if word in file.read_text()] == [], file
