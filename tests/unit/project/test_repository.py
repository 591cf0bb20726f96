"""What must not stand in any tracked file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# Hosts of package registries: which one is used is the machine's configuration, not the project's. Written in parts, so
# that this file passes its own test.
REGISTRIES = [
    ("py", "pi", r"\.org"), ("python", "hosted", r"\.org"), ("(proxy|sum)", r"\.golang", r"\.org"),
    ("registry", r"\.npm", r"js\.org"), ("repo1?", r"\.maven", ""), ("(deb|security|ftp)", r"\.debian", r"\.org"),
    ("static|index", r"\.crates", r"\.io"),
]
FORBIDDEN = re.compile("|".join(rf"\b(?:{a}){b}{c}" for a, b, c in REGISTRIES))


def tracked_texts() -> list[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: there is no list of tracked files")
    texts = []
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file():
            content = path.read_bytes()
            if b"\0" not in content:
                texts.append((name, content.decode(errors="replace")))
    assert texts
    return texts


def test_no_registry_is_named() -> None:
    found = [f"{name}: {match[0]}" for name, text in tracked_texts() if (match := FORBIDDEN.search(text))]
    assert found == []


def test_no_file_names_the_directory_of_a_checkout() -> None:
    if len(ROOT.parts) < 3:
        pytest.skip(f"{ROOT} is too short a path to be told from others")
    found = [name for name, text in tracked_texts() if f"{ROOT}/" in text]
    assert found == []


def test_the_pattern_would_find_one() -> None:
    assert FORBIDDEN.search("https://" + "py" + "pi.org/simple")
    assert not FORBIDDEN.search("the package index, happy pixels.org")


def test_addresses_of_the_project_stand_in_the_chart_alone() -> None:
    """What a publisher has to change is one file; the chart's README is generated from it. Below the home are names
    that never answer: of kinds of builds and documents."""
    named = re.compile(r"https://enginewright\.io(?!/(?:make-release|spdx))")
    assert {name for name, text in tracked_texts() if named.search(text)} == {
        "charts/enginewright/Chart.yaml", "charts/enginewright/README.md", "CONTRIBUTING.md"}
