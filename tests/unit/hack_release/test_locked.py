"""Bills of images that a release does not hold: what their locks say, as the Containerfile installs them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from images.recipe import CONTAINERFILE, ROOT
from release.contents import Package
from release.locked import IMAGES, locked


def versions(image: str, accelerator: str) -> dict[str, str]:
    return {package.name: package.version for package in locked(ROOT, image, accelerator).packages}


@pytest.mark.parametrize(("image", "accelerator", "locks"), [
    ("operator", "cpu", {"operator"}), ("server", "cpu", {"server"}), ("builder", "cpu", {"builder", "server"}),
    ("builder-tensorflow", "cpu", {"builder", "server", "tensorflow"}), ("server-vllm", "cpu", {"vllm"}),
    ("server", "cuda", {"server-gpu"}), ("builder", "cuda", {"builder-gpu", "server-gpu"}),
    ("builder-tensorflow", "cuda", {"builder-gpu", "server-gpu", "tensorflow"}), ("server-vllm", "cuda", {"vllm-gpu"}),
])
def test_an_image_is_locked_by(image: str, accelerator: str, locks: set[str]) -> None:
    assert image in IMAGES[accelerator]
    found = locked(ROOT, image, accelerator)
    assert found.locks == tuple(sorted(f"requirements/{lock}.txt" for lock in locks))
    assert len(found.packages) > 30


def test_every_lock_of_an_image_is_in_a_bill() -> None:
    copied = set(re.findall(r"^COPY (requirements/\S+\.txt) ", CONTAINERFILE.read_text(), re.MULTILINE))
    in_bills = {lock for accelerator, images in IMAGES.items() for image in images
                for lock in locked(ROOT, image, accelerator).locks}
    assert in_bills == copied


def test_what_an_image_leaves_out_of_its_lock_is_in_no_bill() -> None:
    assert "nvidia-cublas" not in versions("server-vllm", "cpu")
    assert "nvidia-cublas" in versions("server-vllm", "cuda")
    # The compiler of PyTorch's kernels: the server for GPUs leaves it out, the builder above it brings it.
    assert "triton" not in versions("server", "cuda")
    assert "triton" in versions("builder", "cuda")


def test_packages_of_two_environments_in_one_image_are_both_there() -> None:
    assert {"torch", "keras"} <= set(versions("builder-tensorflow", "cpu"))
    lock = (ROOT / "requirements" / "vllm-gpu.txt").read_text()
    pinned = re.findall(r"^(\S+)==(\S+)", lock, re.MULTILINE)
    assert locked(ROOT, "server-vllm", "cuda").packages == tuple(sorted(Package("pypi", *pin) for pin in pinned))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path in ("builders/images", "requirements"):
        shutil.copytree(ROOT / path, tmp_path / path)
    return tmp_path


@pytest.mark.parametrize(("old", "new", "message"), [
    ("install-locked /opt/enginewright/requirements/operator.txt", "pip-install operator.txt", "'operator-deps'"),
    ("COPY requirements/operator.txt", "COPY requirements/operator.txt requirements/server.txt", "'operator-deps'"),
    ("FROM operator-deps AS operator\n", "FROM operator-deps AS controller\n", "no stage 'operator'"),
])
def test_what_the_reader_does_not_follow_is_refused(tree: Path, old: str, new: str, message: str) -> None:
    path = tree / CONTAINERFILE.relative_to(ROOT)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        locked(tree, "operator", "cpu")
