"""What ``pip install`` brings and what the images have is the same list."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


@pytest.mark.parametrize(("file", "declared"), [
    ("operator", [*PROJECT["dependencies"], *EXTRAS["tracing"]]),
    ("builder", [*PROJECT["dependencies"], *EXTRAS["builder"], *EXTRAS["tracing"], *EXTRAS["triton"]]),
])
def test_all_that_an_image_has_is_declared(file: str, declared: list[str]) -> None:
    lines = (ROOT / "requirements" / f"{file}.in").read_text().splitlines()
    assert {line for line in lines if line and not line.startswith("#")} <= set(declared)
