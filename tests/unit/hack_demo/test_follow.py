"""What a demo knows of objects that it follows by kubectl's watch."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from demo import follow
from demo.follow import Followed
from demo.shell import TRIES, Kube, StepError


def event(kind: str, name: str, replicas: int) -> str:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name}, "spec": {"replicas": replicas}}})


def program(folder: Path, script: str) -> Kube:
    """kubectl that notes each start in ``starts``, and ends with ``script``."""
    path = folder / "kubectl"
    path.write_text(f'#!/bin/sh\necho "$@" >> {folder / "starts"}\n{script}\n')
    path.chmod(0o755)
    return Kube(kubectl=str(path), kubeconfig="k", helm="")


def until(found: Followed, wanted: dict[str, int]) -> None:
    """Waits until these are the replicas by name."""
    seen: dict[str, int] = {}
    while seen != wanted:
        seen = {one["metadata"]["name"]: one["spec"]["replicas"] for one in found.now(60)}
        time.sleep(0.01)


def test_it_knows_what_the_watch_told_last(tmp_path: Path) -> None:
    events = [event("ADDED", "a", 1), event("ADDED", "b", 1), event("MODIFIED", "a", 3), event("DELETED", "b", 1)]
    (tmp_path / "events").write_text("\n".join(events) + "\n")
    kube = program(tmp_path, f"cat {tmp_path / 'events'}; exec sleep 600")
    with Followed(kube, "deployment", "demo", "-l", "a=b") as found:
        until(found, {"a": 3})
    assert (tmp_path / "starts").read_text().splitlines() == [
        "--kubeconfig=k get deployment -l a=b -n demo --watch --output-watch-events -o json"]


def test_another_watch_begins_where_one_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The apiserver ends each after a while, with a word or without; what is known stays known."""
    monkeypatch.setattr(follow, "PAUSE_SECONDS", 0.0)
    for start, events in enumerate([event("ADDED", "a", 1), "", event("ADDED", "b", 2)], 1):
        (tmp_path / f"events-{start}").write_text(f"{events}\n" if events else "")
    kube = program(tmp_path, f'events="{tmp_path}/events-$(wc -l < {tmp_path / "starts"})"\n'
                             '[ -e "$events" ] || exec sleep 600\ncat "$events"')
    with Followed(kube, "om", "demo") as found:
        until(found, {"a": 1, "b": 2})


def test_kubectl_that_cannot_begin_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PAUSE_SECONDS", 0.0)
    kube = program(tmp_path, "echo 'Error from server: no such kind' >&2; exit 1")
    with Followed(kube, "om", "demo") as found, pytest.raises(StepError, match="no such kind"):
        found.now(60)
    assert len((tmp_path / "starts").read_text().splitlines()) == TRIES


def test_without_a_word_it_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with (Followed(program(tmp_path, "exec sleep 600"), "om", "demo") as found,
          pytest.raises(StepError, match=r"'kubectl get om -n demo .*' said nothing within 0 s")):
        found.now(0.1)
