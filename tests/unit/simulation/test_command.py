"""``enginewright simulate``: what it prints, in three forms, and what it refuses."""

from __future__ import annotations

import json
import math
import random
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from enginewright.cli import main

FIGURES = ["--service-ms", "20", "--capacity-rps", "40", "--cold-start-seconds", "5"]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """A minute whose rate rises and falls."""
    draw, now, lines = random.Random(1), 0.0, ["TIMESTAMP,tokens"]
    while (now := now + draw.expovariate(60.0)) < 60:
        if draw.random() < 0.5 - 0.4 * math.cos(now / 10):
            lines.append(f"{1700000000 + now:.6f},{draw.randint(1, 9)}")
    path = tmp_path / "minute.csv"
    path.write_text("\n".join(lines))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["simulate", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_has_the_figures_of_every_policy(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--trace", trace, *FIGURES, "--policies", "all", "--format", "json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert list(answer["policies"]) == ["enginewright", "hpa", "keda", "knative", "oracle"]
    for row in answer["policies"].values():
        assert {name: type(value) for name, value in row.items()} == {
            "requests": int, "slo_violations": int, "violation_rate": float, "replica_seconds": float,
            "p50_ms": float, "p99_ms": float, "reversals": int,
        }
        assert row["requests"] == answer["trace"]["requests"]
        assert row["violation_rate"] == pytest.approx(row["slo_violations"] / row["requests"], abs=1e-6)
        assert 20.0 <= row["p50_ms"] <= row["p99_ms"]
    assert answer["trace"]["name"] == "minute.csv"
    assert "grid" not in answer


def test_the_same_command_prints_the_same(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--trace", trace, *FIGURES, "--rate-scale", "1.7", "--seed", "3", "--format", "json"]
    first, again = run(capsys, *command), run(capsys, *command)
    other = run(capsys, *command[:-4], "--seed", "4", "--format", "json")
    assert first == again
    assert first[1] != other[1]


def test_a_grid_has_a_row_for_each_setting_of_each_peer(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--trace", trace, *FIGURES, "--policies", "hpa,knative,enginewright", "--grid",
                    "--format", "json")
    answer = json.loads(out)
    assert list(answer["policies"]) == ["hpa", "knative", "enginewright"]
    assert len(answer["grid"]) == 2 * 16
    for row in answer["grid"]:
        assert set(row) == {"policy", "settings", "slo_violations", "replica_seconds"}
        assert set(row["settings"]) == {"target", "window"}


def test_a_table_is_the_default(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--trace", trace, *FIGURES)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("minute.csv: ")
    assert lines[1].split()[:3] == ["policy", "requests", "late"]
    assert [line.split()[0] for line in lines[2:]] == ["enginewright", "hpa", "keda", "knative", "oracle"]
    assert max(map(len, lines)) <= 120


class Page(HTMLParser):
    """Counts tags, and checks that each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.attributes += attrs
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_the_page_draws_every_policy_and_loads_nothing(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--trace", trace, *FIGURES, "--policies", "hpa,oracle", "--grid", "--format", "html")
    page = Page()
    page.feed(out)
    assert page.tags["svg"] == 3  # the rate, and one a policy
    assert [kind for name, kind in page.attributes if name == "class" and kind in ("ready", "waiting", "late")] == [
        "ready", "waiting", "late"] * 2
    assert not [name for name, _ in page.attributes if name in ("src", "href")]
    assert page.tags["tr"] == 1 + 2 + 1 + 16
    assert "nan" not in out.lower().split("<body>")[1]
    assert "$" not in out


def report(folder: Path, **changes: Any) -> str:
    path = folder / "build-report.json"
    path.write_text(json.dumps({
        "sweep": {"service_curve": [{"batch": 1, "p50_ms": 10.0}, {"batch": 4, "p50_ms": 16.0}]},
        "serving": {"max_batch_size": 4, "instance_count": 1}, "objective": {"latency_ms": 60.0},
        "engine": {"load_seconds": 7.0, "throughput_at_objective": 150.0}, **changes}))
    return str(path)


def test_a_build_report_gives_the_objective_and_the_cold_start(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--trace", trace, "--service-curve", report(tmp_path), "--policies", "hpa", "--format", "json"]
    settings = json.loads(run(capsys, *command)[1])["settings"]
    assert (settings["slo_ms"], settings["cold_start_seconds"], settings["max_batch"]) == (60.0, 7.0, 4)
    assert settings["capacity_rps"] == 250.0
    told = json.loads(run(capsys, *command, "--slo-ms", "80", "--cold-start-seconds", "3", "--percentile", "95")[1])
    assert (told["settings"]["slo_ms"], told["settings"]["percentile"]) == (80.0, 95.0)


def of_triton(folder: Path) -> str:
    """An instance is taken for 10 ms, or 12 ms where it was idle, and a client waits 5 ms on top."""
    curve = [{"batch": 1, "p50_ms": 14.0, "compute_ms": 10.0}, {"batch": 4, "p50_ms": 20.0, "compute_ms": 16.0}]
    return report(folder, sweep={"service_curve": curve, "alone": {"compute_ms": 12.0, "transport_ms": 5.0}})


def test_an_objective_that_the_wire_alone_breaks_is_refused(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--trace", trace, "--service-curve", of_triton(tmp_path), "--policies", "hpa", "--format", "json"]
    code, out, err = run(capsys, *command, "--slo-ms", "14.5")
    assert (code, out) == (2, "")
    assert "--slo-ms: 14.5 is 0.5 ms below the 15 ms that one request takes alone" in err
    assert "write more than 15," in err
    assert run(capsys, *command, "--slo-ms", "15")[0] == 0


def test_an_objective_that_an_idle_replica_misses_is_told(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--trace", trace, "--service-curve", of_triton(tmp_path), "--policies", "hpa", "--format", "json"]
    told = json.loads(run(capsys, *command, "--slo-ms", "16")[1])["notes"]
    assert any("finds a replica idle takes 17 ms, more than the objective of 16 ms" in note for note in told)
    assert json.loads(run(capsys, *command, "--slo-ms", "17")[1])["notes"] == []


def test_notes_of_the_trace_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "paused.csv"
    path.write_text("\n".join(["TIMESTAMP", *map(str, range(20)), *map(str, range(2000, 2020))]))
    for form in ("json", "table", "html"):
        _, out, _ = run(capsys, "--trace", str(path), *FIGURES, "--policies", "hpa", "--format", form)
        assert "Pauses without requests: 1, the longest of 1981 s" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--slo-ms", "10"], "--slo-ms: 10 is 10 ms below the 20 ms that one request takes alone: no "
                     "number of replicas meets it; write more than 20", id="an objective below the compute time"),
        pytest.param(["--slo-ms", "0"], "--slo-ms: got 0; write a number above 0", id="no objective"),
        pytest.param(["--percentile", "100"], "--percentile: got 100; write a number between", id="percentile"),
        pytest.param(["--min", "5", "--max", "4"], "--min, --max: got 5 and 4; write", id="limits"),
        pytest.param(["--max", "1001"], "--max: got 1001; autoscaling.maxReplicas is at most 1000", id="most replicas"),
        pytest.param(["--cold-start-seconds", "-1"], "--cold-start-seconds: got -1; write 0 or more", id="cold start"),
        pytest.param(["--rate-scale", "0"], "--rate-scale: got 0; write a number above 0", id="rate scale"),
        pytest.param(["--price-per-hour", "2"], "--price-per-hour: 2 has no meaning without "
                     "autoscaling.costCeilingPerHour", id="a price alone"),
        pytest.param(["--policies", "hpa,vpa"], "--policies: got 'hpa,vpa'; write all, or some of enginewright,hpa,",
                     id="policies"),
        pytest.param(["--max-batch", "0"], "--max-batch: got 0; write 1 or more", id="largest batch"),
        pytest.param(["--service-curve", "x.json"], "--service-curve: replaces --service-ms and --capacity-rps; "
                     "leave those out", id="curve and figures"),
    ],
)
def test_what_is_refused(
    trace: str, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "--trace", trace, *FIGURES, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("enginewright: ")
    assert words in err


def test_what_is_assumed_of_a_replica_is_told(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--trace", trace, "--policies", "hpa", "--format", "json")
    answer = json.loads(out)
    assert (answer["settings"]["service_ms"], answer["settings"]["capacity_rps"]) == (50.0, 20.0)
    assert "the simulation assumes 20 requests a second, one by one; write --service-curve" in answer["notes"][0]
