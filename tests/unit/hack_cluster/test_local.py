"""Pods of an earlier cluster are removed once containerd can say which there are; commands wait for each other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster import binaries, local
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


def test_one_command_at_a_time_however_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock's file goes with each command, under those that wait for it."""
    monkeypatch.setattr(local, "LOCK", tmp_path / "lock")
    inside, alone = threading.Lock(), []

    def command(_: int) -> None:
        with local._locked():
            alone.append(inside.acquire(blocking=False))
            assert (tmp_path / "lock").exists()
            if alone[-1]:
                inside.release()

    with ThreadPoolExecutor(8) as commands:
        list(commands.map(command, range(200)))
    assert alone == [True] * 200
    assert not (tmp_path / "lock").exists()
