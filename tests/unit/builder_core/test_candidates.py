"""Who wins, and why each other one lost, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginewright_builder.accuracy import Accuracy
from enginewright_builder.candidates import Candidate, Judgement, judge
from enginewright_builder.contract import ObjectiveRequest
from enginewright_builder.engines.base import Rung
from enginewright_builder.measure import Timing

ROUNDS = 20


def timing(milliseconds: float, tail: float = 0.0) -> Timing:
    # Every tenth round slower, so that percentiles differ.
    times = tuple(milliseconds + (tail if index % 10 == 9 else 0.001 * index) for index in range(ROUNDS))
    return Timing(batch=8, times_ms=times, cold_ms=100.0)


def candidate(precision: str, milliseconds: float, low: float = 1.0, *, finite: bool = True, wanted: bool = True,
              tail: float = 0.0) -> Candidate:
    return Candidate(rung=Rung(backend="onnxruntime", precision=precision), wanted=wanted,
                     timing=timing(milliseconds, tail),
                     accuracy=Accuracy(metric="cosine", value=low + 0.002, low=low, samples=100, finite=finite))


def verdicts(judgement: Judgement) -> dict[str, tuple[str, str]]:
    return {one.rung.precision: (one.verdict, one.reason) for one in judgement.candidates}


def run(*candidates: Candidate, source: float = 10.0, objective: ObjectiveRequest | None = None) -> Judgement:
    return judge(list(candidates), timing(source), 0.01, objective or ObjectiveRequest())


def test_the_fastest_that_passes_is_shipped() -> None:
    judgement = run(candidate("fp32", 8.0), candidate("int8-dynamic", 4.0, 0.991), candidate("int8-static", 2.0, 0.947))
    told = verdicts(judgement)
    assert judgement.winner is not None
    assert judgement.winner.rung.precision == "int8-dynamic"
    assert told["int8-dynamic"] == ("Shipped", "2.50× the source model's throughput; cosine lower bound 0.9910")
    assert told["fp32"] == ("Slower", "passes, but 2.00× slower than onnxruntime int8-dynamic")
    assert told["int8-static"] == ("AccuracyRefused", "mean cosine 0.9490, lower bound 0.9470 < 0.99")


def test_of_equally_fast_ones_the_more_precise_is_shipped() -> None:
    told = verdicts(run(candidate("fp32", 5.0), candidate("int8-dynamic", 4.9)))
    assert told["fp32"][0] == "Shipped"
    assert told["int8-dynamic"] == ("Passed", "passes and is as fast as onnxruntime fp32, which is the more precise")


def test_the_latency_objective_comes_before_throughput() -> None:
    fast_with_tail, steady = candidate("fp32", 4.0, tail=50.0), candidate("int8-dynamic", 5.0)
    objective = ObjectiveRequest(latency_ms=10.0)
    judgement = run(fast_with_tail, steady, objective=objective)
    assert judgement.winner is not None
    assert judgement.winner.rung.precision == "int8-dynamic"


def test_when_none_meets_the_latency_the_fastest_is_shipped() -> None:
    judgement = run(candidate("fp32", 8.0), candidate("int8-dynamic", 4.0), objective=ObjectiveRequest(latency_ms=1.0))
    assert judgement.winner is not None
    assert judgement.winner.rung.precision == "int8-dynamic"


@pytest.mark.parametrize("broken", [
    replace(candidate("int8-dynamic", 1.0), failure="unsupported", accuracy=None, timing=None),
    candidate("int8-dynamic", 1.0, finite=False),
    replace(candidate("int8-dynamic", 1.0), rung=Rung(backend="onnxruntime", precision="int8-dynamic",
                                                       unavailable="no calibration data")),
], ids=["failed", "nan", "unavailable"])
def test_what_does_not_work_never_wins(broken: Candidate) -> None:
    judgement = run(candidate("fp32", 8.0), broken)
    assert judgement.winner is not None
    assert judgement.winner.rung.precision == "fp32"
    assert verdicts(judgement)["int8-dynamic"][0] in ("Failed", "AccuracyRefused", "Skipped")
    assert verdicts(judgement)["int8-dynamic"][1]


class TestNothingPasses:
    def test_the_most_precise_is_offered_not_served(self) -> None:
        judgement = run(candidate("fp32", 8.0, 0.98), candidate("int8-dynamic", 4.0, 0.95))
        assert judgement.winner is None
        assert judgement.problem == "AccuracyNotReached"
        assert verdicts(judgement)["fp32"][0] == "Offered"
        assert "0.9800 < 0.99" in verdicts(judgement)["fp32"][1]
        assert verdicts(judgement)["int8-dynamic"][0] == "AccuracyRefused"

    def test_a_precision_that_was_not_asked_for_is_offered_never_shipped(self) -> None:
        judgement = run(candidate("fp32", 2.0, wanted=False), candidate("int8-dynamic", 4.0, 0.95))
        assert judgement.winner is None
        assert verdicts(judgement)["fp32"][0] == "Offered"
        passing = run(candidate("fp32", 2.0, wanted=False), candidate("int8-dynamic", 4.0, 0.995))
        assert passing.winner is not None
        assert passing.winner.rung.precision == "int8-dynamic"
        assert verdicts(passing)["fp32"][0] == "Skipped"

    def test_nothing_at_all_works(self) -> None:
        broken = replace(candidate("fp32", 1.0), failure="no kernel", accuracy=None, timing=None)
        judgement = run(broken)
        assert judgement.winner is None
        assert verdicts(judgement)["fp32"] == ("Failed", "no kernel")


class TestSlowerThanTheSource:
    def test_is_offered(self) -> None:
        judgement = run(candidate("fp32", 20.0), candidate("int8-dynamic", 15.0), source=10.0)
        assert judgement.winner is None
        assert judgement.problem == "NotFasterThanSource"
        told = verdicts(judgement)
        assert told["fp32"][0] == "Offered"
        assert told["int8-dynamic"] == ("Slower", "passes, but 1.50× slower than the source model as it is")

    def test_the_source_itself_is_served_when_all_else_is_slower(self) -> None:
        """However a noisy machine measured it."""
        measured = [candidate("fp32", 13.0), candidate("int8-dynamic", 12.0)]
        judgement = judge(measured, timing(10.0), 0.01, ObjectiveRequest(), "onnxruntime fp32")
        assert judgement.winner is not None
        assert judgement.winner.rung.precision == "fp32"
        assert judge([candidate("fp32", 13.0, 0.9)], timing(10.0), 0.01, ObjectiveRequest(),
                     "onnxruntime fp32").winner is None

    def test_the_same_graph_measured_twice_is_not_slower_than_itself(self) -> None:
        judgement = run(candidate("fp32", 10.1), source=10.0)
        assert judgement.winner is not None


def test_summaries_have_figures_where_there_are_any() -> None:
    summary = candidate("fp32", 8.0).summary(8)
    assert summary.p50_ms == pytest.approx(8.0, abs=0.1)
    assert summary.throughput == pytest.approx(1000, rel=0.01)
    empty = Candidate(rung=Rung(backend="b", precision="p", unavailable="why")).summary(8)
    assert (empty.p50_ms, empty.accuracy, empty.size_bytes) == (None, None, None)
