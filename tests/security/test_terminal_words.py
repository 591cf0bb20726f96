"""Escape sequences in a model's files reach the terminal of whoever asks what became of the model: they write to the
clipboard, and hide or forge lines."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from rich.console import Console, RenderableType

from enginewright.clients.errors import TransientError
from enginewright.commands.validate import FileError
from enginewright.core.conditions import bad, merge
from enginewright.core.decide.jobs import explain as sentence
from enginewright.core.events import NOTE_LIMIT, shorten, transitions
from enginewright.core.reasons import Condition
from enginewright.plugin import main as plugin
from enginewright.plugin import screen, verbs
from enginewright.plugin.wishes import WishError
from enginewright.plugin.words import explain
from enginewright_builder.contract import ErrorReport, printable

# Of a config.json: one writes to the clipboard, one wipes the line; C1's form of the same; text from right to left.
ESCAPES = "\x1b]52;c;aGk=\x07\x1b[2K\rFor\x9b2KCausalLM\u202e"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
MESSAGE = sentence(ErrorReport(family="user", reason="SourceInvalid", message=f"no model of class {ESCAPES}",
                               field="spec.source", value=ESCAPES, remedy="write\nanother"))


def is_harmless(text: str) -> bool:
    return all(one.isprintable() or one == "\n" for one in text)


def status_of_before() -> dict[str, Any]:
    """As an earlier operator wrote it."""
    condition = {"type": "Ready", "status": "False", "reason": "SourceInvalid", "message": MESSAGE,
                 "observedGeneration": 1, "lastTransitionTime": "2026-11-30T11:00:00Z"}
    return {"conditions": [condition, {**condition, "type": "EngineBuilt"}],
            "build": {"fingerprint": "ab" * 32, "step": ESCAPES, "percent": 40}}


def obj(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "net", "namespace": "models", "generation": 1},
            "spec": {"source": {"uri": "hf://a/b"}}, "status": {**status_of_before(), **status}}


def drawn(picture: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=4000, color_system=None)
    console.print(picture)
    found: str = console.file.getvalue()  # type: ignore[attr-defined]
    return found


def test_newlines_stay_and_what_a_terminal_acts_on_goes() -> None:
    assert not is_harmless(MESSAGE)
    assert printable("a\nb\tc\u00a0d\x1b[2Ke") == "a\nb c d\N{REPLACEMENT CHARACTER}[2Ke"
    assert printable("naïve “模型” – 3 ≤ x") == "naïve “模型” – 3 ≤ x"
    assert printable("\ud800") == "\N{REPLACEMENT CHARACTER}"


def test_none_gets_into_conditions_or_events() -> None:
    verdict = bad(Condition.SOURCE_RESOLVED, "SourceInvalid", MESSAGE)
    (entry,) = merge([], [verdict], 1, NOW)
    (event,) = transitions([], [verdict])
    for text in (entry["message"], event.note):
        assert is_harmless(text)
        assert "write\nanother" in text
    assert len(shorten("\x1b" * NOTE_LIMIT).encode()) <= NOTE_LIMIT


@pytest.mark.parametrize("show", [
    lambda: drawn(screen.live(obj(), NOW)),
    lambda: drawn(screen.table([obj(conditions=[{"type": "Ready", "status": "False", "reason": ESCAPES}])]))])
def test_none_of_an_old_status_gets_into_a_picture(show: Callable[[], str]) -> None:
    assert is_harmless(show())


def test_none_of_an_old_status_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    verbs._print("\n".join(screen.lines(explain(obj(), NOW))), "text")
    assert is_harmless(capsys.readouterr().out)


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_read_what_it_was_as_escapes(form: str, read: Callable[[str], Any],
                                              capsys: pytest.CaptureFixture[str]) -> None:
    verbs._print({"message": MESSAGE, "name": "模型"}, form)
    out = capsys.readouterr().out
    assert is_harmless(out)
    assert read(out) == {"message": MESSAGE, "name": "模型"}


@pytest.mark.parametrize("error", [WishError(MESSAGE), FileError(MESSAGE), TransientError(MESSAGE),
                                   ValueError(MESSAGE)])
def test_no_error_prints_one(error: Exception, monkeypatch: pytest.MonkeyPatch,
                             capsys: pytest.CaptureFixture[str]) -> None:
    async def fail(options: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(plugin, "_run", fail)
    assert plugin.main(["explain", "net"])
    said = capsys.readouterr().err
    assert is_harmless(said)
    assert said.startswith("error: ")


def test_a_manifest_that_is_checked_prints_none(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "enginewright.io/v1alpha1", "kind": "OptimisedModel",
                                    "metadata": {"name": ESCAPES}, "spec": {"source": {"uri": ESCAPES}}}))
    assert plugin.main(["validate", str(file)]) == 1
    said = capsys.readouterr()
    assert "refused" in said.out
    assert is_harmless(said.out + said.err)
