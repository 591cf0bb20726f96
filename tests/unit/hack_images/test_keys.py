"""Keys follow the content of what goes into an image, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images import containerfile, keys
from images.keys import MissingInputError

TEXT = """
FROM debian AS base
FROM base AS tools
COPY tool /tool
FROM base AS deps
COPY lock /lock
RUN --mount=type=bind,from=tools,target=/mnt install
FROM deps AS one
COPY source /source
FROM base AS two
ARG KIND
COPY other /other
"""


@pytest.fixture
def context(tmp_path: Path) -> Path:
    for name in ("tool", "lock", "other"):
        (tmp_path / name).write_text(name)
    (tmp_path / "source" / "below").mkdir(parents=True)
    (tmp_path / "source" / "below" / "a.py").write_text("a")
    return tmp_path


def key(name: str, context: Path, text: str = TEXT, **arguments: str) -> str:
    return keys.stage_key(name, containerfile.parse(text, arguments), context, arguments)


@pytest.mark.parametrize(
    ("changed", "one", "two"),
    [("tool", True, False), ("lock", True, False), ("source/below/a.py", True, False), ("other", False, True)],
)
def test_a_change_reaches_the_images_that_hold_it_and_no_others(
    context: Path, changed: str, one: bool, two: bool
) -> None:
    before = key("one", context), key("two", context)
    (context / changed).write_text("changed")
    after = key("one", context), key("two", context)
    assert (before[0] != after[0], before[1] != after[1]) == (one, two)


def test_names_count(context: Path) -> None:
    before = key("one", context)
    (context / "source" / "below" / "a.py").rename(context / "source" / "below" / "b.py")
    assert key("one", context) != before


def test_byte_code_times_and_modes_do_not_count(context: Path) -> None:
    before = key("one", context)
    cached = context / "source" / "below" / "__pycache__"
    cached.mkdir()
    (cached / "a.cpython-311.pyc").write_text("x")
    source = context / "source" / "below" / "a.py"
    source.chmod(0o600)
    os.utime(source, (1, 1))
    assert key("one", context) == before


def test_an_instruction_counts_and_a_comment_does_not(context: Path) -> None:
    before = key("one", context)
    assert key("one", context, TEXT.replace("COPY source", "# why\nCOPY source")) == before
    assert key("one", context, TEXT.replace("install", "install --more")) != before


def test_an_argument_counts_where_it_is_declared(context: Path) -> None:
    assert key("two", context, KIND="a") != key("two", context, KIND="b")
    assert key("one", context, KIND="a") == key("one", context, KIND="b")


def test_the_image_below_counts(context: Path) -> None:
    assert key("one", context, TEXT.replace("FROM debian", "FROM other")) != key("one", context)


def test_a_missing_input_is_named(context: Path) -> None:
    (context / "lock").unlink()
    with pytest.raises(MissingInputError, match=r"lock is copied into an image and is not there"):
        key("one", context)
