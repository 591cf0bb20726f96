"""``pytest -m`` imports no file that it takes no test of, and each that it takes one of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.markers import may_choose

TESTS = Path(__file__).resolve().parents[2]
FILES = {
    "plain.py": "def test_it(): ...",
    "all.py": "pytestmark = [pytest.mark.torch, pytest.mark.asyncio]",
    "some.py": "@pytest.mark.torch\ndef test_one(): ...\ndef test_other(): ...",
    "cluster/plain.py": "def test_it(): ...",
    "cluster/some.py": "@pytest.mark.triton\ndef test_one(): ...",
    "cluster/conftest.py": "item.add_marker(pytest.mark.integration)",
}


@pytest.mark.parametrize(("expression", "chosen"), [
    ("not torch", {"plain.py", "some.py", "cluster/plain.py", "cluster/some.py"}),
    ("torch", {"all.py", "some.py"}),
    ("triton or (torch and integration)", {"cluster/some.py"}),
    ("integration and not triton", {"cluster/plain.py", "cluster/some.py"}),
    ("not torch and not integration", {"plain.py", "some.py", "cluster/plain.py", "cluster/some.py"}),
    ("vllm", set()),
])
def test_a_file_is_left_out_where_no_test_can_be_asked_for(expression: str, chosen: set[str], tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {name for name in FILES if "conftest" not in name and may_choose(expression, tmp_path / name, tmp_path)}
    assert found == chosen


def test_markers_come_from_test_files_and_from_conftest_files_above_them() -> None:
    """What is imported from elsewhere would be left out."""
    own = re.findall(r'^  "(\w+): ', (TESTS.parent / "pyproject.toml").read_text(), re.MULTILINE)
    assert {"triton", "integration"} <= set(own)
    uses = re.compile(rf"\bmark\.({'|'.join(own)})\b")
    for path in sorted((TESTS / "support").rglob("*.py")):
        assert not uses.search(path.read_text()), path
    renamed = re.compile(r"^(from pytest import .*\bmark\b|import pytest as )", re.MULTILINE)
    for path in sorted(TESTS.rglob("*.py")):
        assert not renamed.search(path.read_text()), path
