"""Which files can have a test that ``pytest -m`` asks for, by their text alone: to import them takes seconds."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping
from pathlib import Path

from _pytest.mark.expression import Expression

# A line that marks all tests of a file.
_MARKS_ALL = re.compile(r"^pytestmark = .*", re.MULTILINE)
_MARK = re.compile(r"\bpytest\.mark\.(\w+)")


def may_choose(expression: str, file: Path, root: Path) -> bool:
    """Whether ``expression`` of markers can be true of a test in ``file``, which lies below ``root``.

    A marker is on a test only where its name stands in the file or in a conftest file beside or above it.
    """
    own = file.read_text()
    folders = [folder for folder in file.parents if folder == root or root in folder.parents]
    everywhere = {name for line in _MARKS_ALL.findall(own) for name in _MARK.findall(line)}
    somewhere = set(_MARK.findall(own)).union(*map(_marks_of_conftest, folders))
    asked = sorted(set(re.findall(r"\w+", expression)) - {"and", "or", "not"})
    can_be = [{True} if name in everywhere else {False, name in somewhere} for name in asked]
    compiled = Expression.compile(expression)
    return any(_is_true(compiled, dict(zip(asked, values, strict=True))) for values in itertools.product(*can_be))


def _is_true(expression: Expression, marked: Mapping[str, bool]) -> bool:
    def has(name: str, /, **_: str | int | bool | None) -> bool:
        return marked[name]

    return expression.evaluate(has)


@functools.cache
def _marks_of_conftest(folder: Path) -> frozenset[str]:
    path = folder / "conftest.py"
    return frozenset(_MARK.findall(path.read_text())) if path.is_file() else frozenset()
