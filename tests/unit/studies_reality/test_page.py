"""What was found, as people read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reality import page

FIGURES = {"p50_ms": 10.0, "p95_ms": 20.0, "throughput": 50.0}


def study(model: str = "MiniLM", trace: str = "Poisson", simulated_p95: float = 22.0) -> dict[str, Any]:
    simulated = {**FIGURES, "p95_ms": simulated_p95}
    repeats = [{"failed": 1, "real": FIGURES, "simulated": simulated, "pace": pace, "at_pace": FIGURES}
               for pace in (1.0, 1.3, 1.1)]
    off = {"p50_ms": 0.0, "p95_ms": simulated_p95 / 20.0 - 1, "throughput": 0.0}
    return {"model": model, "trace": trace, "command": "make reality-check", "hardware": {"device": "EPYC"},
            "replicas": 1, "cores_of_a_replica": 1, "wake_ms": 0.5, "transport_ms": 1.0,
            "service_ms": {"1": 10.0, "2": 18.0, "3": 26.0},
            "rows": [{"load": 0.5, "rate": 50.0, "requests": 500, "repeats": repeats, "off": off,
                      "off_at_pace": dict.fromkeys(FIGURES, 0.0)}]}


def test_a_row_tells_the_middle_of_the_repeats_and_how_far_off_the_simulator_is() -> None:
    text = page.page([study()])
    assert "| 50% | 50.0 | 10.0 | +0% | 20.0 | +10% | 50.0 | +0% | 1.10 | +0%, +0%, +0% |" in text
    assert "by batch: 1: 10, 2: 18; after a pause 0.5 more, and 1 for the client. 3 repeats; 3 requests failed." in text
    assert "50%: (+0%, +10%, +0%), (+0%, +10%, +0%), (+0%, +10%, +0%)." in text


def test_a_study_takes_the_place_of_the_one_before_of_the_same_model_and_load(tmp_path: Path) -> None:
    for one in (study(), study(trace="a.csv"), study("Other"), study(simulated_p95=30.0)):
        page.write(tmp_path, one)
    kept = json.loads((tmp_path / page.JSON).read_text(encoding="utf-8"))["studies"]
    assert [(one["model"], one["trace"]) for one in kept] == [
        ("MiniLM", "Poisson"), ("MiniLM", "a.csv"), ("Other", "Poisson")]
    assert kept[0]["rows"][0]["off"]["p95_ms"] == 0.5
    assert (tmp_path / page.PAGE).read_text(encoding="utf-8") == page.page(kept)
