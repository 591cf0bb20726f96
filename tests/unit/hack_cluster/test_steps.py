"""What a long step says while it goes on."""

from __future__ import annotations

import threading

import pytest

from cluster import steps


class Said(threading.Event):
    """Stands where standard error would be; set once ``wanted`` was written."""

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self.wanted, self.lines = wanted, list[str]()

    def write(self, text: str) -> None:
        self.lines.append(text)
        if self.wanted in text:
            self.set()

    def flush(self) -> None:
        """Nothing is kept back."""


def test_a_step_that_says_nothing_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said("inner: 0 s")
    monkeypatch.setattr(steps, "QUIET_S", 0.01)
    monkeypatch.setattr("sys.stderr", said)
    with steps.step("outer"), steps.step("inner"):
        assert said.wait(60), said.lines
    told = "".join(said.lines)
    assert told.index("✓ inner") < told.index("✓ outer")


def test_it_says_no_more_once_it_has_ended() -> None:
    before = {*threading.enumerate()}
    with steps.step("work"):
        [ticker] = {*threading.enumerate()} - before
    ticker.join(60)
    assert not ticker.is_alive()


def test_one_that_fails_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), steps.step("work"):
        raise RuntimeError
    assert "✗ work failed after" in capsys.readouterr().err
    assert not steps._open.steps
