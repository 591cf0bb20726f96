"""A model's files name a tensor as markup of the library that draws the builder's terminal: the build by hand ends with
a traceback, or shows a link that leads elsewhere than it says."""

from __future__ import annotations

import io
import logging
import re
from dataclasses import replace

import pytest
from rich.console import Console

from demo import __main__ as demo
from demo.shell import StepError
from enginewright_builder.contract import CandidateSummary, ErrorReport, Outcome, Progress, TaskFigure
from enginewright_builder.logs import PrintableFormatter
from enginewright_builder.terminal import Terminal
from support.children import ENGINE

WORDS = "[/y] [link=https://evil.example]https://good.example[/link] :bomb: \x1b]8;;https://evil.example\x07"
SHOWN = "[/y] [link=https://evil.example]https://good.example[/link] :bomb: \N{REPLACEMENT CHARACTER}]8;;"
ERROR = ErrorReport(family="user", reason="OnnxInvalid", message=WORDS, field="spec.source", value=WORDS, remedy=WORDS)
TASK = TaskFigure(metric=WORDS, value=1.0, source=1.0, loss=0.0, loss_high=0.0, max_loss=0.1)
CANDIDATE = CandidateSummary(backend="onnxruntime", precision="fp32", verdict="Failed", batch=1, name=WORDS,
                             reason=WORDS, task=TASK)
BUILT = replace(ENGINE, backend=WORDS, evaluation=WORDS, task=TASK)
OUTCOMES = [Outcome(kind="build", ok=False, error=ERROR), Outcome(kind="build", ok=True, engine=BUILT),
            Outcome(kind="build", ok=True, candidates=(CANDIDATE,))]


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "2000")


def shown(outcome: Outcome) -> str:
    stream = io.StringIO()
    terminal = Terminal(stream)
    terminal.progress(Progress(step="build", fraction=0.5, detail=WORDS))
    terminal.outcome(outcome)
    return stream.getvalue()


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_words_of_others_are_shown_as_they_are(outcome: Outcome) -> None:
    text = shown(outcome)
    assert all(line.isprintable() for line in text.splitlines())
    assert text.count(SHOWN) >= 2, "of the progress and the outcome"


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_nor_are_they_links_on_a_terminal(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    text = shown(outcome)
    assert "\x1b[" in text, "it is drawn in colours"
    assert not re.search(r"\x1b\]|\x07", text)


def test_nor_in_the_log() -> None:
    record = logging.LogRecord("enginewright_builder", logging.WARNING, "", 0, "%s\nline", (WORDS,), None)
    text = PrintableFormatter("%(message)s").format(record)
    assert text.startswith(SHOWN)
    assert text.endswith("\nline")
    assert text.replace("\n", "").isprintable()


def test_nor_in_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise StepError(WORDS)

    stream = io.StringIO()
    monkeypatch.setattr(demo.console, "file", stream)
    assert demo.carried_out(fail) == 1
    assert stream.getvalue().startswith(f"The demo stopped: {SHOWN}")
    assert isinstance(demo.console, Console)
    demo.say(WORDS)
    assert f"▸ {SHOWN}" in stream.getvalue()
