from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enginewright_builder.report import BuildReport
from enginewright_builder.sweep import Point
from support import reports


@pytest.fixture
def make_point() -> Callable[..., Point]:
    return reports.make_point


@pytest.fixture
def report() -> BuildReport:
    return reports.build_report()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = (
        os.geteuid() == 0
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], check=False, capture_output=True
        ).returncode
        == 0
    )
    if not mounted:
        pytest.skip("mounting needs root")
    yield path
    subprocess.run(["umount", str(path)], check=True)
