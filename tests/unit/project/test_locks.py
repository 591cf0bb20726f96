"""The lock files: every package pinned with hashes, the operator's light, one version of a package everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)(?:\[[^]]*])?==(\S+)(.*)$")


def pins(lock: Path) -> dict[str, tuple[str, int]]:
    """Package → (version, number of hashes)."""
    found: dict[str, tuple[str, int]] = {}
    current = ""
    for line in lock.read_text().splitlines():
        if match := PIN.match(line):
            current = match[1]
            assert current not in found, f"{lock.name}: {current} is repeated"
            found[current] = (match[2], 0)
        elif "--hash=sha256:" in line:
            version, hashes = found[current]
            found[current] = (version, hashes + 1)
        else:
            assert not line.strip() or line.lstrip().startswith("#"), f"{lock.name}: what is {line!r}?"
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_is_pinned_with_hashes(lock: Path) -> None:
    locked = pins(lock)
    assert locked
    assert [name for name, (_, hashes) in locked.items() if not hashes] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_each_lock_has_its_source(lock: Path) -> None:
    source = lock.with_suffix(".in").read_text()
    wanted = {re.split(r"[\[<>=!~ ]", line)[0].lower() for line in source.splitlines() if line and line[0].isalpha()}
    assert wanted <= {name.replace("_", "-") for name in pins(lock)}, "run: make lock"


def test_one_version_everywhere() -> None:
    tested = pins(ROOT / "requirements" / "dev.txt")
    for name in ("operator", "builder", "server", "tensorflow"):
        for package, (version, _) in pins(ROOT / "requirements" / f"{name}.txt").items():
            assert tested.get(package, (version, 0))[0] == version, f"{name}.txt: {package} is not what is tested"


@pytest.mark.parametrize("name", ["builder-gpu", "server-gpu"])
def test_on_gpus_only_the_measured_versions_differ_and_what_pytorch_pins(name: str) -> None:
    tested = pins(ROOT / "requirements" / "dev.txt")
    stated = (ROOT / "requirements" / "gpu-versions.in").read_text().splitlines()
    own = {re.split(r"[<>=;]", line)[0] for line in stated if not line.startswith("#")}
    other = {package for package, (version, _) in pins(ROOT / "requirements" / f"{name}.txt").items()
             if tested.get(package, (version, 0))[0] != version}
    assert [package for package in sorted(other - own - {"triton", "setuptools"})
            if not package.startswith(("nvidia-c", "nvidia-n", "cuda-"))] == []


def test_the_operator_is_light() -> None:
    heavy = {"torch", "tensorrt", "triton", "onnx", "onnxruntime", "transformers", "numpy", "scipy", "pandas",
             "nvidia-pytriton"}
    locked = set(pins(ROOT / "requirements" / "operator.txt"))
    assert locked & heavy == set()
    assert [name for name in locked if name.startswith("nvidia-")] == []
