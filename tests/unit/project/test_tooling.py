"""The tools' own configuration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = sorted([*(ROOT / "hack").rglob("*.sh"), *(ROOT / "studies").rglob("*.sh"), ROOT / ".ci" / "run"])


def test_hooks_are_local_and_valid() -> None:
    file = ROOT / ".pre-commit-config.yaml"
    command = [sys.executable, "-m", "pre_commit", "validate-config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout
    repositories = yaml.safe_load(file.read_text())["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    for hook in repositories[0]["hooks"]:
        program = hook["entry"].split()[0]
        assert program.startswith(".venv/bin/") or (ROOT / program).exists(), program


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(ROOT)))
def test_scripts_are_executable_and_parse(script: Path) -> None:
    text = script.read_text()
    if text.startswith("#!"):
        assert script.stat().st_mode & 0o111, "chmod +x"
    else:
        assert "shellcheck shell=" in text.splitlines()[0], "a file to be sourced says its shell"
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "\nmake test " in (ROOT / "README.md").read_text()
