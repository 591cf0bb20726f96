"""``verify.sh`` on folders that are no longer as they were released."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[3] / "hack" / "release" / "verify.sh"
FILES = {"install.yaml": b"manifests", "enginewright-0.1.0.tgz": b"chart"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Without a bill of materials, so that no tool is installed to read it."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(FILES.items())]
    (tmp_path / "SHA256SUMS").write_text("".join(sums))
    return tmp_path


def verified(folder: Path) -> tuple[int, str]:
    ran = subprocess.run([PROGRAM, folder], capture_output=True, text=True, check=False,
                         env={"PATH": os.environ["PATH"], "UV": "/bin/true"})
    return ran.returncode, ran.stderr


def test_a_folder_as_it_was_released(folder: Path) -> None:
    assert verified(folder) == (0, "")


@pytest.mark.parametrize("name", ["enginewright-0.1.0-py3-none-any.whl", ".hidden", "more/install.yaml"])
def test_a_file_that_no_sum_is_of(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"added")
    code, told = verified(folder)
    assert code != 0
    assert "SHA256SUMS does not name these files" in told
    assert name in told


def test_a_file_that_changed(folder: Path) -> None:
    (folder / "install.yaml").write_bytes(b"others")
    code, told = verified(folder)
    assert (code, "install.yaml" in told or "1 computed checksum" in told) == (1, True)
