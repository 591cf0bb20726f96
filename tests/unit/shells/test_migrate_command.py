"""``enginewright migrate`` on files; on the cluster in ``tests/integration/test_migrate.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.cli import main
from enginewright.commands.migrate import merge_patch
from enginewright.core import labels

OLD = f"""\
# a comment
apiVersion: v1
kind: ConfigMap
metadata: {{name: other}}
data: {{mode: fixed}}
---
apiVersion: {labels.API_VERSION}
kind: OptimisedModel
metadata: {{name: minilm, namespace: prod}}
spec:
  source: {{uri: pvc://models/minilm}}
  accuracy: {{tolerance: 0.02}}
  batching: {{mode: auto}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.yaml"
    path.write_text(OLD)
    return path


def test_it_says_what_it_would_change_and_writes_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(file)]) == 1
    said = capsys.readouterr().err
    assert f"{file}: minilm: spec.accuracy.tolerance is now spec.accuracy.maxLoss" in said
    assert "spec.batching.mode has no meaning any more" in said
    assert "Add --write" in said
    assert file.read_text() == OLD


def test_with_write_it_rewrites_the_file_and_nothing_but_our_objects(file: Path) -> None:
    assert main(["migrate", "--write", str(file)]) == 0
    other, ours = yaml.safe_load_all(file.read_text())
    assert other["data"] == {"mode": "fixed"}
    assert ours["spec"] == {"source": {"uri": "pvc://models/minilm"}, "accuracy": {"maxLoss": 0.02}, "batching": {}}
    once = file.read_text()
    assert main(["migrate", "--write", str(file)]) == 0
    assert file.read_text() == once
    assert main(["migrate", str(file)]) == 0


def test_a_file_without_old_names_keeps_its_comments(file: Path) -> None:
    text = OLD.replace("tolerance", "maxLoss").replace("  batching: {mode: auto}\n", "")
    file.write_text(text)
    assert main(["migrate", "--write", str(file)]) == 0
    assert file.read_text() == text


def test_a_list_as_kubectl_writes_it(file: Path) -> None:
    (_, ours) = yaml.safe_load_all(OLD)
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [ours]}))
    assert main(["migrate", "--write", str(file)]) == 0
    assert json.loads(file.read_text())["items"][0]["spec"]["accuracy"] == {"maxLoss": 0.02}


@pytest.mark.parametrize("arguments", [[], ["--all", "model.yaml"], ["missing.yaml"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", *arguments]) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(("before", "after", "patch"), [
    ({"a": {"old": 1, "kept": 2}}, {"a": {"kept": 2, "new": 1}}, {"a": {"old": None, "new": 1}}),
    ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
    ({"a": {"b": {}}}, {"a": {"b": {}}}, {}),
    ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
])
def test_patches(before: dict[str, Any], after: dict[str, Any], patch: dict[str, Any]) -> None:
    assert merge_patch(before, after) == patch
