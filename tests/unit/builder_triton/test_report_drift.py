"""What the page says of the layers where refused engines lose accuracy."""

from __future__ import annotations

import dataclasses
import html

import pytest

from enginewright_builder.accuracy.drift_report import DriftReport, LayerDrift
from enginewright_builder.contract import Verdict
from enginewright_builder.report import BuildReport
from enginewright_builder.report.drift import DRAWN, Drift, drifts, percent
from enginewright_builder.report.page import render

REFUSED = "onnxruntime int8-static"
ADDED = {"/embed": 0.0, "/layer.0/attention/MatMul": 0.002, "/layer.0/Softmax": 0.0004, "/layer.1/MatMul": 0.08,
         "/layer.1/Gelu": 0.0, "/layer.2/MatMul": 0.03, "/layer.2/Add": 0.00001, "/layer.3/MatMul": 0.011,
         "/layer.3/Gelu": 0.0007, "/head": 0.006}


def layers() -> tuple[LayerDrift, ...]:
    error, found = 0.0, []
    for node, added in ADDED.items():
        error += added
        found.append(LayerDrift(node=node, operator=node.split("/")[-1], error=error, added=added,
                                lowered="MatMul" in node or node == "/head"))
    return tuple(found)


def with_drift(report: BuildReport, found: DriftReport, *, again: Verdict | None = None) -> BuildReport:
    """``again`` is the verdict of a second try."""
    refused = dataclasses.replace(report.candidates[2], name=REFUSED)
    tried = [dataclasses.replace(refused, name=f"{REFUSED} (kept 2 layers in higher precision)", verdict=again,
                                 accuracy_low=0.9921)] if again else []
    return dataclasses.replace(report, candidates=(*report.candidates[:2], refused, *tried), drift={REFUSED: found})


@pytest.fixture
def drawn(report: BuildReport) -> Drift:
    found, = drifts(with_drift(report, DriftReport(layers=layers(), samples=64), again="Passed"))
    return found


def test_layers_that_added_most_are_drawn_in_the_graphs_order(drawn: Drift) -> None:
    nodes = [bar.node for bar in drawn.bars]
    assert len(nodes) == DRAWN
    assert nodes == sorted(nodes, key=list(ADDED).index)
    assert set(ADDED) - set(nodes) == {"/embed", "/layer.1/Gelu"}
    assert {bar.node: bar.width for bar in drawn.bars}["/layer.1/MatMul"] == 100
    assert {bar.node: bar.width for bar in drawn.bars}["/layer.3/MatMul"] == pytest.approx(13.75, abs=0.06)
    assert f"Drawn are the {DRAWN} layers that added most, of {len(ADDED)}." in drawn.text


def test_layers_that_the_second_try_kept_are_marked_and_its_outcome_is_told(drawn: Drift) -> None:
    """Of five lowered layers at most two are kept: those that added most."""
    assert {bar.node for bar in drawn.bars if bar.kept} == {"/layer.1/MatMul", "/layer.2/MatMul"}
    assert drawn.text.endswith("in higher precision: passed, lower bound 0.9921.")
    assert "the answers are 13% off the source's, on 64 samples" in drawn.text


def test_without_a_second_try_nothing_was_kept(report: BuildReport) -> None:
    found, = drifts(with_drift(report, DriftReport(layers=layers(), samples=1)))
    assert not any(bar.kept for bar in found.bars)
    assert "higher precision" not in found.text
    assert "on 1 sample." in found.text


def test_a_layer_that_answers_nan_is_named_and_has_no_bar(report: BuildReport) -> None:
    broken = LayerDrift(node="/softmax", operator="Softmax", error=0.0, added=0.0, finite=False)
    found, = drifts(with_drift(report, DriftReport(layers=(*layers(), broken), first_not_finite="/softmax", samples=8)))
    bar = next(bar for bar in found.bars if bar.node == "/softmax")
    assert (bar.added, bar.error, bar.width) == ("NaN or ∞", "–", 0.0)
    assert found.text.startswith("The first layer that answers NaN or infinity is /softmax.")


def test_a_table_that_could_not_be_made_says_why(report: BuildReport) -> None:
    found, = drifts(with_drift(report, DriftReport(unavailable="its graph does not run on a CPU: no kernel")))
    assert found.bars == ()
    assert found.text == "There is no table: its graph does not run on a CPU: no kernel."


def test_a_candidate_without_drift_of_its_own_adds_no_section(report: BuildReport) -> None:
    assert drifts(report) == ()
    assert "lose accuracy" not in render(report)


def test_the_page_draws_every_bar_once_and_escapes_names(report: BuildReport) -> None:
    odd = LayerDrift(node="<b>/x", operator="MatMul", error=0.2, added=0.2)
    page = render(with_drift(report, DriftReport(layers=(*layers()[:3], odd), samples=64), again="AccuracyRefused"))
    assert "Where refused engines lose accuracy" in page
    assert html.escape("<b>/x") in page
    assert "<b>/x" not in page
    assert page.count('class="layer"') == 4
    assert page.count("✓ kept") == 1  # of two lowered layers at most half
    assert "ONNX Runtime INT8-STATIC" in page


@pytest.mark.parametrize(("value", "text"), [(0.0, "0%"), (1e-7, "< 0.001%"), (0.00123, "0.123%"), (0.0871, "8.71%"),
                                             (1.5, "150%")])
def test_errors_are_told_in_three_digits(value: float, text: str) -> None:
    assert percent(value) == text
