"""How the plugin's command line is read, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from enginewright.plugin import main as command_line
from enginewright.plugin.main import main, parse


@pytest.mark.parametrize("verb", ["rollback", "promote", "report"])
@pytest.mark.parametrize("words", [["minilm", "-n", "team", "4e1c"], ["-n", "team", "minilm", "4e1c"],
                                   ["minilm", "4e1c", "-n", "team"]])
def test_a_revision_is_read_wherever_it_stands(verb: str, words: list[str]) -> None:
    options = parse([verb, *words])
    assert (options.name, options.namespace, options.revision) == ("minilm", "team", "4e1c")


@pytest.mark.parametrize("words", [["rollback", "minilm", "4e1c", "-n", "team", "5f"],
                                   ["retry", "minilm", "-n", "team", "x"],
                                   ["rollback", "minilm", "-n", "team", "--no-such"]])
def test_what_is_one_word_too_many_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    assert f"unrecognized arguments: {words[-1]}" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["minilm", "om/minilm", "optimisedmodel/minilm", "optimisedmodels/minilm",
                                  "optimisedmodel.enginewright.io/minilm", "optimisedmodels.enginewright.io/minilm"])
def test_a_name_is_read_as_kubectl_writes_it(word: str) -> None:
    assert parse(["explain", word, "-n", "team"]).name == "minilm"


@pytest.mark.parametrize("word", ["pod/minilm", "team/minilm", "/minilm", "om/", "om/x/minilm"])
def test_what_is_of_another_kind_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["explain", word])
    assert f"{word}: is not an OptimisedModel; write its name, or om/NAME" in capsys.readouterr().err


def test_who_stops_reading_gets_no_traceback(tmp_path: Path) -> None:
    """``kubectl optimisedmodel … | head``."""
    manifest = tmp_path / "model.yaml"
    manifest.write_text("kind: OptimisedModel\n")
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "enginewright.plugin", "validate", str(manifest)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_defect_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def defect(_: object) -> int:
        raise KeyError("spec")

    monkeypatch.setattr(command_line, "check_files", defect)
    assert main(["validate", "model.yaml"]) == 70
    told = capsys.readouterr().err
    assert told.startswith("error: a defect of kubectl optimisedmodel ")
    assert told.endswith("PYTHONDEVMODE=1: KeyError: 'spec'\n")


def test_without_a_verb_it_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    told = capsys.readouterr().out
    assert all(f"    {verb} " in told for verb in ("explain", "watch", "rollback", "diff", "validate"))
