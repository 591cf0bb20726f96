"""The workflows of the usual CI run what this repository has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.version import VERSION, current

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def workflow(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yaml").read_text())
    return found


def scripts(document: dict[Any, Any]) -> str:
    return "\n".join(step.get("run", "") for job in document["jobs"].values() for step in job["steps"])


def test_both_run_what_the_ci_runs() -> None:
    for path in WORKFLOWS:
        assert "bash .ci/run" in scripts(workflow(path.stem)), path.name
    assert {path.stem for path in WORKFLOWS} == {"ci", "release"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_exist(path: Path) -> None:
    text = scripts(workflow(path.stem))
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^\s*make ([a-z-]+)", text, re.MULTILINE)) <= targets
    for script in re.findall(r"(?:hack|\.ci)/[\w/.-]+", text):
        assert (ROOT / script).is_file(), script


def test_a_tag_is_released_twice_and_verified_with_the_least_rights() -> None:
    document = workflow("release")
    assert document[True]["push"]["tags"] == ["v*"]  # YAML 1.1 reads `on` as true
    assert "make release TWICE=1" in scripts(document)
    assert "make verify-release" in scripts(document)
    assert document["permissions"] == {"contents": "read"}
    assert document["jobs"]["publish"]["permissions"] == {"contents": "write"}


def test_the_tag_is_held_against_the_version() -> None:
    """By the very line of pyproject.toml that the workflow looks for."""
    assert VERSION.fullmatch(current())
    assert 'version = \\"${GITHUB_REF_NAME#v}\\"' in scripts(workflow("release"))
    assert f'\nversion = "{current()}"\n' in (ROOT / "pyproject.toml").read_text()
