"""`pip install enginewright` brings `enginewright-build`, which names the extra that it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from enginewright_builder import __main__ as program

ROOT = Path(__file__).resolve().parents[3]
# Imports what the command does, where numpy cannot be found.
WITHOUT_NUMPY = ("import sys; sys.modules['numpy'] = None; from enginewright_builder.__main__ import main; "
                 "sys.exit(main())")


def run(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "builders")}
    return subprocess.run([sys.executable, "-c", code, "--help"], env=environment, capture_output=True, text=True,
                          timeout=240, check=False)


def test_a_package_that_is_missing_is_named_with_the_extra() -> None:
    done = run(WITHOUT_NUMPY)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "numpy" in done.stderr
    assert "pip install 'enginewright[builder,triton]'" in done.stderr


def test_a_module_of_its_own_that_is_missing_is_a_bug() -> None:
    done = run(WITHOUT_NUMPY.replace("'numpy'", "'enginewright_builder.pipeline'"))
    assert "Traceback" in done.stderr


def test_all_of_the_extra_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert program.absent_packages() == [], "the development environment has all of it"
    known = metadata.version

    def version(name: str) -> str:
        if name in ("torch", "kopf", "nvidia-pytriton"):
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "version", version)
    assert program.absent_packages() == ["torch"], "of this extra alone"


def test_a_clone_without_metadata_names_what_could_not_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    assert "not installed: onnx. " in program.what_to_install("onnx")


def test_the_extras_exist_and_the_command_is_this_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"builder", "triton"} <= set(project["optional-dependencies"])
    assert project["scripts"]["enginewright-build"] == "enginewright_builder.__main__:main"
