"""How `make demo` begins: what goes on side by side, and what its build is given."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import demo.__main__ as demo
from demo.shell import ROOT, Kube, StepError
from demo.summary import Summary

KUBE = Kube("kubectl", "config", "helm")


def test_volumes_are_filled_while_the_operator_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits until the other has begun; and the node gets the images while an earlier demo goes."""
    both, before = threading.Barrier(2, timeout=60), threading.Barrier(2, timeout=60)
    monkeypatch.setattr(demo, "beside", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(demo, "start_cluster", lambda: None)
    monkeypatch.setattr(demo, "remove_model", lambda *_: before.wait())
    monkeypatch.setattr(demo, "load_images", lambda _: {"operator": ("image", before.wait())[0]})
    monkeypatch.setattr(demo, "install", lambda *_: both.wait())
    monkeypatch.setattr(Kube, "of_cluster", lambda: KUBE)
    filled: list[str] = []

    def prepare(_: Kube, image: Callable[[], str]) -> None:
        found = image()
        both.wait()
        filled.append(found)

    assert demo.start(Summary(), "demo", prepare) == (KUBE, {"operator": "image"})
    assert filled == ["image"]


@pytest.mark.parametrize(("asked", "load", "given"), [(None, [0, 1], 45), (None, [20, 19], 150), (60, [20], 60)])
def test_a_busy_machine_gives_its_build_more_time(asked: int | None, load: list[int], given: int, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Busy with other work: by the time of the build the demo has loaded it, too."""
    class AppliedError(Exception):
        pass

    def kubectl(_: Kube, *arguments: str, stdin: str = "", **__: Any) -> str:
        assert arguments == ("apply", "-f", "-")
        raise AppliedError(stdin)

    def start(*_: Any) -> tuple[Kube, dict[str, str]]:
        monkeypatch.setattr(demo, "want_to_run", lambda: [20])
        return KUBE, {}

    monkeypatch.setattr(demo, "start", start)
    monkeypatch.setattr(demo, "OUTPUT", tmp_path)
    monkeypatch.setattr(demo, "reference_embeddings", lambda _: None)
    monkeypatch.setattr(demo, "want_to_run", lambda: load)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(Kube, "__call__", kubectl)
    with pytest.raises(AppliedError) as applied:
        demo.demonstrate(asked)
    wanted = yaml.safe_load((ROOT / "hack/demo/minilm.yaml").read_text())
    wanted["spec"]["engine"]["buildBudgetSeconds"] = given
    assert json.loads(str(applied.value)) == wanted


@pytest.mark.parametrize(("load", "words"), [
    ([1, 3], "^it lost$"), ([1, 4], r"^it lost\n  This machine is busy \(on 2 cores\)")])
def test_a_build_that_fails_beside_other_work_says_so(load: list[int], words: str,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "want_to_run", lambda: load)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    with pytest.raises(StepError, match=words), demo.disturbed():
        raise StepError("it lost")


def test_it_counts_the_other_threads_that_run_now(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(one >= 0 for one in demo.want_to_run(looks=2)), "the kernel tells it"
    monkeypatch.setattr(Path, "read_text", lambda _: "processes 900\nprocs_running 5\nprocs_blocked 3\n")
    assert list(demo.want_to_run(looks=2)) == [4, 4]
