"""The pages that people open, in a real browser."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime
from math import inf, nan
from pathlib import Path

import pytest

from enginewright.cli import main as enginewright
from enginewright.plugin.history import filled, history
from enginewright_builder.report.page import render
from support.browser import Shown, chart, sheets, show
from support.reports import build_report

NOW = datetime(2026, 11, 22, 11, 0, tzinfo=UTC)
WHY = "7 queued requests (at most 3 each) <b>&</script>"
MODEL = {
    "metadata": {"name": "minilm", "namespace": "team"},
    "status": {"replicas": 1, "autoscaling": {"decisions": [
        {"time": "2026-11-22T10:40:00Z", "from": 3, "to": 1, "reason": "0 queued requests"},
        {"time": "2026-11-22T10:20:00Z", "from": 1, "to": 3, "reason": WHY},
    ]}},
}


def figure(shown: Shown, name: str) -> str:
    found = chart(shown, name)
    assert found, f"chart {name} is not drawn"
    return found


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "report.html"
    file.write_text(render(build_report()), encoding="utf-8")
    return file


def test_the_report_draws_its_charts_and_complains_of_nothing(page: Path, tmp_path: Path) -> None:
    shown = show(page, tmp_path / "profile")
    assert shown.console == ()
    assert 'data-drawn="yes"' in shown.dom
    pareto = figure(shown, "pareto")
    for text in ("p99 latency, ms", "inferences a second", "chosen", "objective", "18.2 ms", "Before: ONNX Runtime"):
        assert text in pareto, text
    assert len(re.findall(r'aria-roledescription="point"', pareto)) == 7, "six settings and plain serving"
    layers = figure(shown, "layers")
    assert len(re.findall(r'aria-roledescription="bar"', layers)) == 8
    for text in ("Before", "Shipped", "Model compute", "Transport"):
        assert text in layers, text
    assert not any(chart(shown, name) for name in ("replicas", "queued", "rate"))


def test_a_chart_with_fewer_kinds_of_points_complains_of_nothing(page: Path, tmp_path: Path) -> None:
    """Of a build without time for plain serving, and of one that measured a single setting."""
    report = build_report()
    assert report.sweep
    alone = dataclasses.replace(report.sweep, points=(report.sweep.best,))
    page.write_text(render(dataclasses.replace(report, sweep=alone, performance=None)), encoding="utf-8")
    shown = show(page, tmp_path / "profile")
    assert shown.console == ()
    assert "chosen" in figure(shown, "pareto")
    assert 'data-chart="layers"' not in shown.dom


def test_the_report_says_what_a_million_inferences_cost_before_and_after(page: Path, tmp_path: Path) -> None:
    assert "What it costs to run" in page.read_text(encoding="utf-8")
    assert hidden(show(page, tmp_path / "profile")), "the build knows no price"
    engine = {"fingerprint": "f" * 64, "backend": "onnxruntime", "precision": "int8", "speedup": 2.35}
    cost = {"perMillionInferences": 0.2, "currency": "EUR", "pricePerHour": 0.1}
    found = filled(page.read_text(encoding="utf-8"), history({"status": {"engine": engine, "cost": cost}}, NOW))
    assert found
    page.write_text(found, encoding="utf-8")
    shown = show(page, tmp_path / "priced")
    assert shown.console == ()
    assert not hidden(shown)
    assert "Before, with the source model, a million inferences would cost 0.47 EUR" in shown.dom


def hidden(shown: Shown) -> bool:
    (line,) = re.findall(r'<dt([^>]*)>Money</dt><dd id="money-words"([^>]*)>', shown.dom)
    return all("hidden" in part for part in line)


def test_the_report_shows_how_the_model_has_scaled(page: Path, tmp_path: Path) -> None:
    minutes = [NOW.timestamp() - 60 * back for back in range(60, -1, -1)]
    measured = {"replicas": [(at, 1.0) for at in minutes], "queued": [(at, at % 7) for at in minutes],
                "rate": [(at, at % 11) for at in minutes]}
    found = filled(page.read_text(encoding="utf-8"), history(MODEL, NOW, measured))
    assert found
    page.write_text(found, encoding="utf-8")
    shown = show(page, tmp_path / "profile")
    assert shown.console == ()
    assert "Queued requests" in figure(shown, "queued")
    assert "Requests a second" in figure(shown, "rate")
    assert figure(shown, "replicas").count('aria-roledescription="point"') == 2
    rows = re.findall(r"<tr>(.*?)</tr>", shown.dom.partition('id="scaling-decisions"')[2].partition("</table>")[0])
    assert ["3 → 1" in row for row in rows] == [False, True, False], "the heading, then the newest first"
    assert "&lt;b&gt;&amp;&lt;/script&gt;" in rows[2], "a reason is text"


def test_without_prometheus_the_decisions_alone_are_drawn(page: Path, tmp_path: Path) -> None:
    found = filled(page.read_text(encoding="utf-8"), history(MODEL, NOW))
    assert found
    page.write_text(found, encoding="utf-8")
    shown = show(page, tmp_path / "profile")
    assert shown.console == ()
    assert figure(shown, "replicas")
    assert not chart(shown, "queued")


def test_what_is_missing_in_prometheus_is_missing_on_the_page(page: Path, tmp_path: Path) -> None:
    """A gap, one point alone, values that are no numbers, zeros alone, and no decision."""
    now = NOW.timestamp()
    measured = {"replicas": [(now - 600, 2.0), (now - 540, 2.0), (now - 480, nan), (now - 60, 1.0), (now, 1.0)],
                "queued": [(now - 120, inf), (now - 60, 0.0), (now, 0.0)], "rate": [(now, 3.0)]}
    found = filled(page.read_text(encoding="utf-8"), history({"status": {"replicas": 1}}, NOW, measured))
    assert found
    page.write_text(found, encoding="utf-8")
    shown = show(page, tmp_path / "profile")
    assert shown.console == ()
    area = re.search(r'class="mark-area[^"]*".*?<path [^>]*d="([^"]*)"', figure(shown, "replicas"))
    assert area
    assert area[1].count("Z") == 2, "nothing is drawn where nothing is known"
    assert re.findall(r">([012])</text>", figure(shown, "replicas")) == ["0", "1", "2"]
    assert figure(shown, "queued")
    assert "mark-symbol" in figure(shown, "rate"), "one value is a point"


@pytest.mark.parametrize("device", ["dark", "phone"])
def test_the_report_fits_where_it_is_read(page: Path, tmp_path: Path, device: str) -> None:
    """Dark follows the reader's setting; on a phone nothing sticks out."""
    options = {"dark": ("--blink-settings=preferredColorScheme=0",), "phone": ("--window-size=500,900",)}[device]
    asked = {"dark": "getComputedStyle(document.body).backgroundColor",
             "phone": "document.documentElement.scrollWidth <= innerWidth"}[device]
    script = f"<script>addEventListener('load', () => setTimeout(() => document.title = {asked}, 5000))</script>"
    with page.open("a", encoding="utf-8") as file:
        file.write(script)
    shown = show(page, tmp_path / "profile", *options)
    assert shown.console == ()
    title = re.search(r"<title>(.*?)</title>", shown.dom)
    assert title
    assert title[1] == {"dark": "rgb(17, 22, 28)", "phone": "true"}[device]


def test_the_report_is_printed_on_one_sheet(page: Path, tmp_path: Path) -> None:
    assert sheets(page, tmp_path / "profile") == 1


def test_the_simulators_page_complains_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP\n" + "".join(f"{second / 4}\n" for second in range(400)))
    command = f"simulate --trace {trace} --service-ms 50 --capacity-rps 20 --slo-ms 200 --max 3 --format html"
    assert enginewright(command.split()) == 0
    file = tmp_path / "simulated.html"
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    shown = show(file, tmp_path / "profile")
    assert shown.console == ()
    assert shown.dom.count("<svg") >= 5
    assert "oracle" in shown.dom


def test_a_page_of_an_earlier_release_has_no_place_for_history() -> None:
    assert filled("<html></html>", history(MODEL, NOW)) is None


def test_history_is_data_and_nothing_else() -> None:
    """What comes from the cluster cannot become a part of the page's code."""
    found = filled('<script type="application/json" id="scaling">null</script>', history(MODEL, NOW))
    assert found
    inner = found.removeprefix('<script type="application/json" id="scaling">').removesuffix("</script>")
    assert "<" not in inner
    assert json.loads(inner)["datasets"]["decisions"][1]["reason"] == WHY
