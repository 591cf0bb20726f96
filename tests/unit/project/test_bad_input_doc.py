"""docs/bad-input.md names only tests and reasons that exist, and a test in every row."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginewright.core.events import UNDER_WAY
from enginewright.core.reasons import Condition, Reason

ROOT = Path(__file__).resolve().parents[3]
CONDITIONS = (ROOT / "docs" / "reference" / "conditions.md").read_text()
HEADER = "| Bad input | Refused by | Condition and reason | Message (shortened) | Shown by |"


def rows() -> list[list[str]]:
    """Cells of each row of the tables of bad input."""
    found, inside = [], False
    for line in (ROOT / "docs" / "bad-input.md").read_text().splitlines():
        inside = line == HEADER or (inside and line.startswith("|"))
        if inside and line != HEADER and not line.startswith("|---"):
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


ROWS = rows()


def named_tests(row: list[str]) -> list[str]:
    return re.findall(r"`(tests/[^`]+)`", row[-1])


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """``test`` and ``Class::test`` of a module; test cases that a library makes count by the name they are given."""
    return frozenset(_names(ast.parse(path.read_text()).body, ""))


def _names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _names(node.body, f"{prefix}{node.name}::")
        elif isinstance(node, ast.Assign):
            yield from (name.id for name in node.targets if isinstance(name, ast.Name) and name.id.startswith("Test"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_row_is_shown_by_tests_that_exist(row: list[str]) -> None:
    assert len(row) == 5
    named = named_tests(row)
    assert named
    for test in named:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert name in names_in(ROOT / path), test


@functools.cache
def builder() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "builders" / "enginewright_builder").rglob("*.py"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_row_names_conditions_and_reasons_that_exist(row: list[str]) -> None:
    named = re.findall(r"`(\w+)`", row[2])
    assert named or row[2] == "none"
    for name in named:
        assert name in {*Condition, *Reason} or f'"{name}"' in builder(), name
        assert f"| `{name}` |" in CONDITIONS, name


NAMED = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[2])}
# Beside what is under way: what is good, what an earlier condition explains, and what the user asked for.
FINE = {
    Reason.RESOLVED, Reason.BUILT, Reason.CACHE_HIT, Reason.SOURCE_SERVED, Reason.VERIFIED, Reason.MET,
    Reason.NO_OBJECTIVE, Reason.COMPLETE, Reason.SERVING, Reason.SERVING_PREVIOUS, Reason.BATCH_COMPLETE,
    Reason.AGREEING, Reason.MEASURING, Reason.UNDECIDED, Reason.MANUAL, Reason.STEADY, Reason.SCALING,
    Reason.SCALED_TO_ZERO, Reason.WAKING, Reason.WAITING_FOR_SOURCE, Reason.ASKING_SERVER_IMAGE, Reason.NO_REPLICA,
    Reason.REPLICAS_NOT_READY, Reason.AS_FAST,
}


def test_every_reason_that_a_build_or_run_can_end_with_has_a_row() -> None:
    reasons = re.findall(r"^\| `(\w+)` \|", CONDITIONS.partition("## Reasons of the builder")[2], re.MULTILINE)
    assert reasons
    assert set(reasons) - NAMED == set()


def test_every_reason_of_the_operator_has_a_row_or_nothing_is_wrong() -> None:
    assert {str(reason) for reason in set(Reason) - FINE - UNDER_WAY} - NAMED == set()


# What users and clusters are known to get wrong, by a word of each: no row may be dropped unnoticed.
KNOWN = (
    "unknown field", "precision", "backend", "INT8 without calibration", "negative number", "absurd number",
    "minimum above maximum", "MIG profile", "malformed source URI", "unsupported source URI", "missing source",
    "digest mismatch", "pickle", "truncated ONNX", "truncated safetensors", "unknown operators", "empty evaluation",
    "wrongly shaped evaluation", "calibration set is the evaluation set", "no rung reaches", "store missing",
    "store read-only", "store full", "image that cannot be pulled", "evicted", "out of memory", "node gone",
    "memory that the builder asks for and does not get", "server that proves an engine, out of memory",
    "operator that TensorRT does not support", "no optimisation profile covers", "corrupt timing cache",
    "another TensorRT version", "too little GPU memory", "NaN or infinity", "time budget too small",
    "operator restarted", "Gateway API that is asked for and not installed",
)


@pytest.mark.parametrize("words", KNOWN)
def test_every_known_bad_input_has_a_row(words: str) -> None:
    assert any(words in row[0] for row in ROWS)
