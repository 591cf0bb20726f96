"""The study of streams: what it asks for, when it ends, what it counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from demo.shell import Kube
from enginewright.core.spec import Spec, parse_spec
from rollouts.cluster import Corner
from streams import models
from streams.moves import Moves
from streams.summary import StreamSummary

RESULT = Path(__file__).resolve().parents[3] / "docs" / "benchmarks" / "streams.json"


def moves(kind: type[Moves] = Moves) -> Moves:
    corner = Corner(Kube(kubectl="", kubeconfig="", helm=""), "builder")
    return kind(corner, StreamSummary(), Console(quiet=True), asked=models.spec, analysis={"maxSlowdown": 10})


class Counted(Moves):
    """Its moves do nothing."""

    def round(self) -> tuple[Callable[[], None], ...]:
        return (lambda: None,) * 6


def test_its_specs_are_valid_and_each_candidate_asks_for_an_engine_of_its_own() -> None:
    drill = moves()
    specs = []
    for drill.variant in range(3):
        spec = parse_spec(drill._spec())
        assert isinstance(spec, Spec), spec
        specs.append(spec)
    assert len({spec.engine.context_tokens for spec in specs}) == 3


@pytest.mark.parametrize(("enough_after", "looks"), [(1, 1), (3, 3)])
def test_each_move_is_made_once_at_least_and_none_after_there_was_enough(enough_after: int, looks: int) -> None:
    asked: list[None] = []

    def enough() -> bool:
        asked.append(None)
        return len(asked) >= enough_after

    drill = moves(Counted)
    drill.until(enough, latest=time.monotonic() + 3600)
    assert len(asked) == looks
    assert not drill.summary.surprises


def test_a_study_that_ends_by_its_time_says_how_far_it_came() -> None:
    drill = moves(Counted)
    drill.until(lambda: False, latest=0.0)
    assert drill.summary.surprises == ["the time was over after 0 moves"]


def found(**changes: Any) -> dict[str, Any]:
    return {"requests": 100, "failed": 0, "errors": {}, "cut_streams": 0, "output_tokens": 1600, "seconds": 9.0,
            "finishes": {"length": 100}, "ttft_ms": {}, "failures": [], **changes}


def test_both_kinds_of_clients_count_and_each_failure_keeps_its_cause() -> None:
    summary = StreamSummary()
    summary.add_streams("connection-each", found())
    assert summary.good
    summary.add_streams("connections-kept", found(failed=1, errors={"ReadError": 1}, cut_streams=1, failures=[
        {"error": "ReadError", "tokens": 3}]))
    assert (summary.requests, summary.failed, summary.cut_streams, summary.tokens) == (200, 1, 1, 3200)
    assert summary.failures == [{"load": "connections-kept", "error": "ReadError", "tokens": 3}]
    assert not summary.good


def test_what_was_published_is_what_the_study_writes() -> None:
    published = json.loads(RESULT.read_text())
    assert published["command"].startswith("make streams-study")
    assert published["summary"].keys() == vars(StreamSummary()).keys()
    assert published["summary"]["requests"] == sum(one["requests"] for one in published["summary"]["loads"].values())
