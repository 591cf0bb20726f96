from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from enginewright_builder.report import BuildReport, charts, read_report, words, write_report
from enginewright_builder.report.page import render

VOID = {"meta", "br", "line", "circle", "path"}


class _Balance(HTMLParser):
    """Every element that opens also closes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.external: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.external += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "data"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_written_report_reads_back_equal(report: BuildReport, tmp_path: Path) -> None:
    write_report(report, tmp_path)
    assert read_report(tmp_path) == report


def test_page_is_well_formed_and_needs_no_network(report: BuildReport) -> None:
    page = render(report)
    parser = _Balance()
    parser.feed(page)
    assert parser.open == []
    assert parser.external == []
    assert not re.search(r"url\(|@import|<script", page)


def test_page_says_what_ships_and_why_the_others_lost(report: BuildReport) -> None:
    page = render(report)
    for text in (
        "ONNX Runtime INT8 ships",
        "2.35×",
        "needs an NVIDIA GPU",
        "cosine at least 0.9570",
        report.source_digest,
        report.fingerprint,
        report.command,
        "max_batch_size: 32",
        "The objective of p99 ≤ 20 ms is met",
    ):
        assert text in page, text


def test_page_escapes_what_comes_from_a_model(report: BuildReport) -> None:
    page = render(dataclasses.replace(report, model_name="<script>alert(1)</script>"))
    assert "<script>" not in page


def test_report_without_sweep_or_reference_figures(report: BuildReport) -> None:
    bare = dataclasses.replace(
        report, sweep=None, reference=dataclasses.replace(report.reference, p50_ms=None, p99_ms=None, throughput=None)
    )
    assert "<svg" not in render(bare)


def test_an_offered_engine_is_not_said_to_ship(report: BuildReport) -> None:
    offered = dataclasses.replace(report, candidates=(dataclasses.replace(report.candidates[1], verdict="Offered"),))
    assert "offered, not served" in words.headline(offered)
    assert " ships" not in words.headline(offered)


def test_a_figure_that_is_no_number_is_refused(report: BuildReport, tmp_path: Path) -> None:
    broken = dataclasses.replace(report, engine=dataclasses.replace(report.engine, p99_ms=float("nan")))
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_report(broken, tmp_path)


def test_dots_stay_inside_the_plot_and_one_is_chosen(report: BuildReport) -> None:
    scatter = charts.pareto(report)
    assert scatter is not None
    left, top, right, bottom = scatter.plot
    assert all(left <= dot.x <= right and top <= dot.y <= bottom for dot in scatter.dots)
    assert [dot.chosen for dot in scatter.dots].count(True) == 1


def test_frontier_holds_exactly_the_points_that_none_beats(report: BuildReport) -> None:
    assert report.sweep is not None
    points = report.sweep.points
    expected = {
        point.objective_ms
        for point in points
        if not any(
            other.objective_ms <= point.objective_ms and other.throughput >= point.throughput and other != point
            for other in points
        )
    }
    assert {point.objective_ms for point in charts.frontier(points)} == expected


@pytest.mark.parametrize(
    ("largest", "ticks"),
    [
        (0, [0, 1]),
        (10, [0, 2, 4, 6, 8, 10]),
        (131, [0, 50, 100, 150]),
        (0.6, [0, 0.2, 0.4, 0.6]),
        (1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks(largest: float, ticks: list[float]) -> None:
    assert charts.nice_ticks(largest) == pytest.approx(ticks)


def test_layers_are_sorted_and_add_up(report: BuildReport) -> None:
    bars = charts.layer_bars(report)
    assert bars[0].label == "Model compute"
    assert bars[0].width == 100.0
    assert bars[-1].cumulative == "100%"


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (words.size, None, "–"),
        (words.size, 512, "512 B"),
        (words.size, 23_200_000, "22.1 MiB"),
        (words.milliseconds, 0.6234, "0.62 ms"),
        (words.milliseconds, 18.24, "18.2 ms"),
        (words.per_second, 12345.6, "12,346/s"),
        (words.seconds, 130, "2.2 min"),
        (words.share, 0.99312, "0.9931"),
    ],
)
def test_numbers_in_words(function: object, value: object, text: str) -> None:
    assert function(value) == text  # type: ignore[operator]
