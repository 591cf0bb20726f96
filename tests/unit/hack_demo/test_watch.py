"""What a demo says of a build where no terminal shows its bar."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from demo import watch
from demo.shell import Kube

STEPS = ("serving the unquantised model", "serving the unquantised model", "trying settings of the server")


class Building(Kube):
    """The demo looks again and again: each time the build is one of ``STEPS`` further, and at last it is built."""

    def __init__(self) -> None:
        super().__init__(kubectl="", kubeconfig="", helm="")
        object.__setattr__(self, "looks", 0)

    def __call__(self, *arguments: str, stdin: str | bytes | None = None, timeout: float = 300) -> str:
        detail = STEPS[self.looks - 1]
        return json.dumps({"event": "progress", "step": "ladder", "fraction": 0.5, "detail": detail})

    def now(self, _: float) -> list[Any]:
        object.__setattr__(self, "looks", self.looks + 1)
        status = "Unknown" if self.looks <= len(STEPS) else "True"
        built = {"type": "EngineBuilt", "status": status, "reason": "Building", "message": "", "observedGeneration": 1}
        return [{"metadata": {"generation": 1}, "status": {"conditions": [built]}}]

    looks: int


def test_each_step_has_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(watch, "BUILDING_POLL_SECONDS", 0.0)
    monkeypatch.setattr(watch, "Followed", lambda kube, *_: contextlib.nullcontext(kube))
    watch.wait_for(Building(), "demo", "minilm", "EngineBuilt", timeout=60)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip().startswith("build:")]
    assert lines == [f"build: ladder: {STEPS[0]}", f"build: ladder: {STEPS[2]}"]
