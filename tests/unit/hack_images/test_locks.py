"""The images' package lists agree with each other, and the installer leaves out what it is told to."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from images.recipe import ROOT

IMAGES = ROOT / "builders" / "images"
# The CUDA runtime answers "no device" and CUPTI is asked by the profiler; pytriton carries tritonserver.
NVIDIA_ON_A_CPU = {"nvidia-cuda-cupti", "nvidia-cuda-runtime", "nvidia-pytriton"}


def locked(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))


def left_out() -> set[str]:
    lines = (IMAGES / "cuda-packages.txt").read_text().splitlines()
    return {line for line in lines if not line.startswith("#")}


def test_the_cpu_image_leaves_out_only_what_is_locked() -> None:
    assert left_out() <= set(locked("builder"))


def test_every_nvidia_package_is_either_needed_on_a_cpu_or_left_out() -> None:
    """A new PyTorch may bring a new one: then decide here."""
    nvidia = {name for name in locked("builder") if name.startswith(("nvidia-", "cuda-"))}
    assert nvidia - left_out() == NVIDIA_ON_A_CPU


def test_the_builder_adds_to_the_server_and_changes_nothing_in_it() -> None:
    builder = locked("builder")
    assert {name: builder.get(name) for name in locked("server")} == locked("server")


@pytest.fixture
def installer(tmp_path: Path) -> Path:
    """install-locked beside a stand-in for uv that keeps the list it is given."""
    shutil.copy(IMAGES / "install-locked", tmp_path)
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\nfor last; do :; done\ncp "$last" {tmp_path}/given\necho "$@" > {tmp_path}/arguments\n')
    uv.chmod(0o755)
    return tmp_path / "install-locked"


LOCK = """# made by uv
one==1 \\
    --hash=sha256:aa \\
    --hash=sha256:ab
    # via x
two==2 \\
    --hash=sha256:bb
    # via one
two-more==3 \\
    --hash=sha256:cc
"""


def test_excluded_stanzas_go_whole_and_the_rest_stays_as_it_was(installer: Path, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(LOCK)
    (tmp_path / "excluded").write_text("# why\ntwo\n")
    subprocess.run([installer, tmp_path / "lock", tmp_path / "excluded"], check=True)
    expected = LOCK.replace("two==2 \\\n    --hash=sha256:bb\n    # via one\n", "")
    assert (tmp_path / "given").read_text() == expected


def test_everything_is_installed_with_hashes_and_without_anything_unlocked(installer: Path, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(LOCK)
    subprocess.run([installer, tmp_path / "lock"], check=True)
    assert (tmp_path / "given").read_text() == LOCK
    assert {"--require-hashes", "--no-deps", "--no-build"} <= set((tmp_path / "arguments").read_text().split())
