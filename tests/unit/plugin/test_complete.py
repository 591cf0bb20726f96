"""Completion, as far as it needs no cluster; with one: tests/integration/test_plugin.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginewright.plugin.complete import main, suggest


@pytest.mark.parametrize(("words", "printed"), [
    (["ex"], "explain\nexport\n:4\n"),
    (["r"], "rebuild\nreport\nretry\nrollback\n:4\n"),
    (["explain", "--o"], "--output\n:4\n"),
    (["explain", "minilm", "-o", "j"], "json\n:4\n"),
    (["export", "minilm", "--as", ""], "kserve\n:4\n"),
    (["validate", ""], ":0\n"),
    (["report", "minilm", "--file", ""], ":0\n"),
    (["nothing", ""], ":4\n"),
    (["explain", "minilm", ""], ":4\n"),
    (["top", ""], ":4\n"),
    (["explain", "-n", ""], ":4\n"),
])
def test_words(words: list[str], printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out == printed


def test_a_cluster_that_cannot_be_asked_suggests_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("""
apiVersion: v1
kind: Config
current-context: gone
contexts: [{name: gone, context: {cluster: gone, user: gone}}]
clusters: [{name: gone, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: gone, user: {}}]
""")
    assert suggest(["explain", "--kubeconfig", str(file), ""]) == ([], 4)
