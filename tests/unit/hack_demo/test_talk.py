"""What who watches the demo reads while it says nothing by itself."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from typing import Any, cast

import pytest

from demo import talk


class Screen(io.StringIO):
    """``ticked`` is set by a line that says that it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.ticked = threading.Event()

    def write(self, text: str) -> int:
        if "…" in text:
            self.ticked.set()
        return super().write(text)


class Looks:
    """Stands where the end of the block is awaited: it comes after so many looks."""

    def __init__(self, count: int) -> None:
        self.left = count

    def wait(self, _: float) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_block_that_says_nothing_goes_on_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "QUIET_SECONDS", 0.01)
    with contextlib.redirect_stdout(Screen()) as screen, talk.going_on():
        assert screen.ticked.wait(60)
        print("result")
    assert "  … 0 s\n" in screen.getvalue()
    assert "result\n" in screen.getvalue()


@pytest.mark.parametrize(("others", "said"), [(1, 0), (0, 3)])
def test_while_others_talk_it_adds_nothing(others: int, said: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "QUIET_SECONDS", 0.0)
    screen = Screen()
    output = talk._Output(screen)
    output.others = others
    talk._tick(output, cast(threading.Event, Looks(3)))
    assert screen.getvalue().count("…") == said


def test_others_are_known_while_they_talk() -> None:
    with contextlib.redirect_stdout(Screen()), talk.going_on():
        output: Any = sys.stdout
        with talk.others_talk():
            assert output.others == 1
        assert output.others == 0


def test_without_it_nothing_is_changed() -> None:
    with contextlib.redirect_stdout(Screen()) as screen, talk.others_talk():
        print("result")
    assert screen.getvalue() == "result\n"
