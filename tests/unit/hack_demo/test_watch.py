"""What a demo says of a build where no terminal shows its bar."""

from __future__ import annotations

import json
from typing import Any

import pytest

from demo import watch
from demo.shell import Kube

STEPS = ("serving the unquantised model", "serving the unquantised model", "trying settings of the server")


class Building(Kube):
    """The demo asks it again and again: each time the build is one of ``STEPS`` further, and at last it is built."""

    def __init__(self) -> None:
        super().__init__(kubectl="", kubeconfig="", helm="")
        object.__setattr__(self, "asked", [])

    def __call__(self, *arguments: str, stdin: str | bytes | None = None, timeout: float = 300) -> str:
        detail = STEPS[len(self.asked) - 1]
        return json.dumps({"event": "progress", "step": "ladder", "fraction": 0.5, "detail": detail})

    def json(self, *arguments: str) -> Any:
        self.asked.append(arguments)
        status = "Unknown" if len(self.asked) <= len(STEPS) else "True"
        built = {"type": "EngineBuilt", "status": status, "reason": "Building", "message": "", "observedGeneration": 1}
        return {"metadata": {"generation": 1}, "status": {"conditions": [built]}}

    asked: list[tuple[str, ...]]


def test_each_step_has_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(watch, "BUILDING_POLL_SECONDS", 0.0)
    watch.wait_for(Building(), "demo", "minilm", "EngineBuilt", timeout=60)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip().startswith("build:")]
    assert lines == [f"build: ladder: {STEPS[0]}", f"build: ladder: {STEPS[2]}"]
