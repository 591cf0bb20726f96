"""``enginewright simulate --autoscaling``: the operator's scaler with the limits of a user's own object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.cli import main
from enginewright.core.scaling import ScaleLimits
from enginewright.core.spec import AutoscalingSpec
from enginewright_simulation import stamps
from enginewright_simulation.contest import Contest
from enginewright_simulation.curve import of_figures
from enginewright_simulation.ours import Ours, read_autoscaling
from enginewright_simulation.policies.enginewright import Enginewright
from enginewright_simulation.run import Run, Scenario
from enginewright_simulation.trace import read_trace

# 80 requests a second for a minute, on replicas that do 20.
RUSH = [0.0125 * number for number in range(4800)]
EIGHT = datetime(2026, 3, 2, 8, tzinfo=UTC).timestamp()


def written(folder: Path, text: str) -> Path:
    path = folder / "om.yaml"
    path.write_text(text)
    return path


def played(folder: Path, block: dict[str, Any], arrivals: Sequence[float] = RUSH, **more: Any) -> Run:
    ours = Ours(autoscaling=read_autoscaling(written(folder, yaml.safe_dump(block))), **more)
    scenario = Scenario(service=of_figures(10.0, 20.0), min_replicas=ours.least, max_replicas=ours.most, cold_start=5.0)
    return Contest(arrivals, scenario, ours).run("enginewright")


def test_steps_bound_how_fast_replicas_come(tmp_path: Path) -> None:
    free = played(tmp_path, {"maxReplicas": 9})
    policies = [{"type": "Pods", "value": 2, "periodSeconds": 30}]
    slow = played(tmp_path, {"maxReplicas": 9, "behavior": {"scaleUp": {"policies": policies}}})
    assert max(after - before for _, before, after in free.changes) > 2
    first, second = slow.changes[:2]
    assert (first[1:], second[1:]) == ((1, 3), (3, 5))
    assert second[0] - first[0] >= 30


def test_what_the_object_prefers_counts(tmp_path: Path) -> None:
    calm = RUSH[::2]
    cheap, usual, quick = (played(tmp_path, {"maxReplicas": 9, "prefer": word}, calm)
                           for word in ("cost", "balanced", "latency"))
    assert cheap.replica_seconds < usual.replica_seconds < quick.replica_seconds
    assert usual.changes == played(tmp_path, {"maxReplicas": 9}, calm).changes


def test_the_cost_ceiling_pays_for_so_many(tmp_path: Path) -> None:
    run = played(tmp_path, {"maxReplicas": 9, "costCeilingPerHour": 7}, price=2.0)
    assert max(after for _, _, after in run.changes) == 3


@pytest.mark.parametrize(("start", "first"), [(EIGHT, 4), (EIGHT - 20, 1)])
def test_schedules_hold_by_the_times_of_the_trace(tmp_path: Path, start: float, first: int) -> None:
    block = {"maxReplicas": 9, "schedules": [{"name": "day", "start": "0 8 * * *", "end": "0 18 * * *",
                                              "minReplicas": 4}]}
    run = played(tmp_path, block, [float(second) for second in range(60)], start=start)
    replicas = {moment.time: moment.replicas + moment.starting for moment in run.moments}
    assert replicas[0.0] == first
    assert replicas[21.0] == 4


def test_a_schedule_may_allow_more_than_the_rest_of_the_time() -> None:
    spec = AutoscalingSpec.model_validate_json(
        '{"minReplicas": 2, "maxReplicas": 3, "schedules": [{"name": "day", "start": "0 8 * * *", "end": "0 18 * * *",'
        ' "minReplicas": 1, "maxReplicas": 8}]}'
    )
    assert (Ours(autoscaling=spec).least, Ours(autoscaling=spec).most) == (1, 8)


@pytest.mark.parametrize("block", [
    {"algorithm": "queue"}, {"source": "prometheus", "prometheus": {"url": "http://prometheus:9090"}}])
def test_queue_depth_alone_decides_where_the_object_says_so(tmp_path: Path, block: dict[str, Any]) -> None:
    calm = RUSH[::5]
    alone = Contest(calm, Scenario(service=of_figures(10.0, 20.0), max_replicas=9, cold_start=5.0)).play(
        Enginewright(ScaleLimits(max_replicas=9, stale_after=90.0), None))
    assert played(tmp_path, {"maxReplicas": 9, **block}, calm).changes == alone.changes
    assert played(tmp_path, {"maxReplicas": 9}, calm).changes != alone.changes


def test_a_trace_tells_when_it_began(tmp_path: Path) -> None:
    lines = tmp_path / "trace.csv"
    lines.write_text("TIMESTAMP\n2026-03-02T08:00:00Z\n2026-03-02T08:00:05Z\n")
    assert (read_trace(lines).start, read_trace(lines).arrivals) == (EIGHT, [0.0, 5.0])
    series = tmp_path / "range.json"
    values = [[EIGHT + 60 * step, "5"] for step in range(3)]
    series.write_text(json.dumps({"data": {"result": [{"values": values}]}}))
    trace = read_trace(series)
    assert 0 < trace.start - EIGHT < 10
    assert trace.arrivals[0] == 0.0


@pytest.mark.parametrize("start", [stamps.EARLIEST, stamps.MILLISECONDS - 1])
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_schedules_hold_at_every_time_that_a_trace_may_have(tmp_path: Path, start: float, zone: str) -> None:
    assert not stamps.problem(start)
    block = {"maxReplicas": 9, "schedules": [{"name": "day", "start": "0 8 * * *", "end": "0 18 * * *",
                                              "timeZone": zone, "minReplicas": 4}]}
    assert played(tmp_path, block, [float(second) for second in range(60)], start=start).moments


MODEL = """
apiVersion: v1
kind: ConfigMap
---
apiVersion: enginewright.io/v1alpha1
kind: OptimisedModel
metadata: {name: mine}
spec:
  source: {uri: pvc://models/mine}
  autoscaling: {minReplicas: 2, maxReplicas: 6}
"""


@pytest.mark.parametrize("text", [MODEL, "{minReplicas: 2, maxReplicas: 6}",
                                  "autoscaling: {minReplicas: 2, maxReplicas: 6}"])
def test_an_object_or_its_block_alone(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["TIMESTAMP", *map(str, range(30))]))
    command = ["simulate", "--trace", str(trace), "--policies", "enginewright,hpa", "--format", "json"]
    assert main([*command, "--autoscaling", str(written(tmp_path, text))]) == 0
    mine = json.loads(capsys.readouterr().out)
    assert (mine["settings"]["min"], mine["settings"]["max"]) == (2, 6)
    assert main([*command, "--min", "2", "--max", "6"]) == 0
    assert json.loads(capsys.readouterr().out) == mine


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        pytest.param("{maxReplica: 6}", [], "spec.autoscaling.maxReplica: is not a field", id="unknown field"),
        pytest.param("{minReplicas: 7, maxReplicas: 6}", [], "is greater than maxReplicas 6", id="between fields"),
        pytest.param("{maxReplicas: 6}", ["--max", "5"], "--autoscaling: replaces --min and --max; leave those "
                     "out", id="said twice"),
        pytest.param("{maxReplicas: 6, costCeilingPerHour: 9}", [], "costCeilingPerHour 9 has no meaning without a "
                     "price; write --price-per-hour F", id="no price"),
        pytest.param("{maxReplicas: 6}", ["--price-per-hour", "0"], "--price-per-hour: got 0; write a number above 0",
                     id="price"),
        pytest.param("{maxReplicas: 6}", ["--price-per-hour", "2"], "--price-per-hour: 2 has no meaning without "
                     "autoscaling.costCeilingPerHour; write that into the file", id="no ceiling"),
        pytest.param(MODEL + "---" + MODEL, [], "has 2 matching documents; give an OptimisedModel", id="two"),
        pytest.param("- 1", [], "give an OptimisedModel with spec.autoscaling, or that block alone", id="a list"),
        pytest.param("", [], "has 0 matching documents", id="empty"),
        pytest.param("{", [], "cannot be read", id="no YAML"),
        pytest.param("{maxReplicas: 6, since: 2023-99-99}", [], "om.yaml: cannot be read: month must be in 1..12; give",
                     id="no date"),
        pytest.param(MODEL.split("  autoscaling")[0], [], "has no spec.autoscaling; give", id="no block"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, text: str, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP\n0\n1\n")
    file = str(written(tmp_path, text))
    assert main(["simulate", "--trace", str(trace), "--autoscaling", file, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("enginewright: ")
    assert words in captured.err
