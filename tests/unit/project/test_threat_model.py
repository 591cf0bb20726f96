"""Every threat names the tests that show what stands against it, and they are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
# Tables without a column of tests say what is trusted, and promise nothing.
TABLES = [table for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE) if "Tests" in table.splitlines()[0]]
ROWS = [[cell.strip() for cell in row.strip("|").split("|")] for table in TABLES for row in table.splitlines()[2:]]
FINDINGS = range(1, 17)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_tests_that_are_there(row: list[str]) -> None:
    named = re.findall(r"`(tests/[^`]+)`", row[-1])
    assert named, "the last cell names no test"
    assert re.sub(r"`tests/[^`]+`|[, ]", "", row[-1]) == "", "the last cell holds tests alone"
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_there_are_tables_of_threats() -> None:
    assert len(TABLES) == 5
    assert len(ROWS) > 30


@pytest.mark.parametrize("finding", FINDINGS)
def test_every_finding_of_the_review_has_a_row(finding: int) -> None:
    assert f"test_{finding:02}_" in PAGE


def test_every_file_of_attacks_is_named() -> None:
    files = (ROOT / "tests" / "security").rglob("test_*.py")
    assert [name for path in files if (name := str(path.relative_to(ROOT))) not in PAGE] == []
