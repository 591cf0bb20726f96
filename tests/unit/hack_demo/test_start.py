"""How `make demo` begins: what goes on side by side, and what its build is given."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

import pytest
import yaml

import demo.__main__ as demo
from demo.shell import ROOT, Kube
from demo.summary import Summary

KUBE = Kube("kubectl", "config", "helm")


def test_volumes_are_filled_while_the_operator_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits until the other has begun."""
    both = threading.Barrier(2, timeout=60)
    monkeypatch.setattr(demo, "beside", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(demo, "start_cluster", lambda: None)
    monkeypatch.setattr(demo, "remove_model", lambda *_: None)
    monkeypatch.setattr(demo, "load_images", lambda _: {"operator": "image"})
    monkeypatch.setattr(demo, "install", lambda *_: both.wait())
    monkeypatch.setattr(Kube, "of_cluster", lambda: KUBE)
    filled: list[str] = []

    def prepare(_: Kube, image: str) -> None:
        both.wait()
        filled.append(image)

    assert demo.start(Summary(), "demo", prepare) == (KUBE, {"operator": "image"})
    assert filled == ["image"]


@pytest.mark.parametrize(("asked", "load", "given"), [(None, 0.5, 75), (None, 20.0, 150), (60, 20.0, 60)])
def test_a_busy_machine_gives_its_build_more_time(asked: int | None, load: float, given: int,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    class AppliedError(Exception):
        pass

    def kubectl(_: Kube, *arguments: str, stdin: str = "", **__: Any) -> str:
        assert arguments == ("apply", "-f", "-")
        raise AppliedError(stdin)

    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(Kube, "__call__", kubectl)
    with pytest.raises(AppliedError) as applied:
        demo.build_and_wait(KUBE, Summary(), asked)
    wanted = yaml.safe_load((ROOT / "hack/demo/minilm.yaml").read_text())
    wanted["spec"]["engine"]["buildBudgetSeconds"] = given
    assert json.loads(str(applied.value)) == wanted
