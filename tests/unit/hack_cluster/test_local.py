"""Pods of an earlier cluster are removed once containerd can say which there are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster import binaries
from cluster.local import Local
from cluster.paths import ClusterPaths
from cluster.steps import ClusterError

EARLY = 'validate CRI v1 runtime API: rpc error: code = Unknown desc = server is not initialized yet'


def removing(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Local:
    """A local cluster whose ``remove-pods`` is a shell script."""
    program = folder / "remove-pods"
    program.write_text(f"#!/bin/sh\ncd {folder}\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(binaries, "plan", lambda _: SimpleNamespace(binary=folder / "kubernetes"))
    cluster = Local.__new__(Local)
    cluster.paths = ClusterPaths(folder, folder / "run", folder / "logs")
    return cluster


def test_a_containerd_that_has_just_begun_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f'echo x >>asked; test "$(wc -l <asked)" -ge 3 || {{ echo "{EARLY}" >&2; exit 1; }}'
    removing(tmp_path, monkeypatch, script)._remove_pods()
    assert (tmp_path / "asked").read_text() == "x\n" * 3


def test_any_other_failure_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = removing(tmp_path, monkeypatch, "echo x >>asked; echo no such sandbox >&2; exit 1")
    with pytest.raises(ClusterError, match="no such sandbox"):
        cluster._remove_pods()
    assert (tmp_path / "asked").read_text() == "x\n"
