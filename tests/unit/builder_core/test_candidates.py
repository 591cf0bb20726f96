"""Who ships for which batches, and why each other one lost, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from enginewright_builder.accuracy.gate import Accuracy
from enginewright_builder.competition.candidates import REFERENCE, Candidate, Judgement, judge
from enginewright_builder.competition.measure import Timing
from enginewright_builder.competition.race import Heat
from enginewright_builder.contract import Interface
from enginewright_builder.engines.base import Artifact, BatchRange, Rung

ROUNDS = 20


def times(milliseconds: float) -> list[float]:
    """The same noise for all, as a round has it."""
    return [milliseconds * (1 + 0.01 * (index % 5)) for index in range(ROUNDS)]


def candidate(precision: str, low: float = 1.0, *, finite: bool = True, wanted: bool = True,
              ranges: tuple[BatchRange, ...] = (), triton: str = "python") -> Candidate:
    rung = Rung(backend="onnxruntime", precision=precision, ranges=ranges)
    return Candidate(rung=rung, wanted=wanted,
                     accuracy=Accuracy(metric="cosine", value=low + 0.002, low=low, samples=100, finite=finite),
                     artifact=Artifact(rung=rung, files={"model.onnx": Path(__file__)}, triton_backend=triton,
                                       interface=Interface(), runtime_version="1"))


def heats(*figures: Mapping[str, float], source: float = 10.0) -> dict[int, Heat]:
    """For the batches 1, 8 and 32, as many as there are figures: milliseconds by precision."""
    made = {}
    for batch, by_precision in zip((1, 8, 32), figures, strict=False):
        arms = {f"onnxruntime {name}": times(value) for name, value in by_precision.items()}
        arms[REFERENCE] = times(source)
        made[batch] = Heat(batch=batch, times=arms, live=list(arms))
    return made


def run(candidates: list[Candidate], *figures: Mapping[str, float], itself: str = "") -> Judgement:
    return judge(candidates, heats(*figures), 0.01, itself)


def verdicts(judgement: Judgement) -> dict[str, tuple[str, str]]:
    return {one.rung.precision: (one.verdict, one.reason) for one in judgement.candidates}


def shipped(judgement: Judgement) -> dict[int, str]:
    return {batch: name.removeprefix("onnxruntime ") for batch, name in judgement.shipped.items()}


def test_the_fastest_that_passes_is_shipped() -> None:
    judgement = run([candidate("fp32"), candidate("int8-dynamic", 0.991), candidate("int8-static", 0.947)],
                    {"fp32": 8.0, "int8-dynamic": 4.0, "int8-static": 2.0})
    assert shipped(judgement) == {1: "int8-dynamic"}
    assert [one.serves for one in judgement.candidates] == [(), (1,), ()]
    assert verdicts(judgement) == {
        "fp32": ("Slower", "passes, but 2.00× slower than onnxruntime int8-dynamic, at batch 1"),
        "int8-dynamic": ("Shipped", "2.50× the source model's throughput at batch 1; cosine lower bound 0.9910"),
        "int8-static": ("AccuracyRefused", "mean cosine 0.9490, lower bound 0.9470 < 0.99")}


def test_a_tuned_one_is_told_where_the_source_is_faster_in_all_that_is_in_use() -> None:
    """A latency objective leaves batch 1 alone, for which it was not built."""
    tuned = candidate("fp16", ranges=(BatchRange(low=2, best=8, high=8),))
    raced = heats({"fp32": 20.0}, {"fp32": 20.0, "fp16 @8": 20.0})
    raced[8].used = False
    judgement = judge([candidate("fp32"), tuned], raced, 0.01)
    assert judgement.problem == "NotFasterThanSource"
    told = verdicts(judgement)
    assert told["fp16"] == ("Slower", "passes, but no batch that it takes is in use")
    assert told["fp32"][0] == "Offered"


def test_what_no_guard_could_tell_is_said_of_who_ships() -> None:
    one = candidate("fp32")
    assert one.accuracy is not None
    told = verdicts(run([replace(one, accuracy=replace(one.accuracy, untold="contrast of y unknown"))], {"fp32": 5.0}))
    assert told["fp32"] == ("Shipped", "2.00× the source model's throughput at batch 1; cosine lower bound 1.0000; "
                                       "contrast of y unknown")


def test_of_equally_fast_ones_the_more_accurate_is_shipped() -> None:
    told = verdicts(run([candidate("int8-dynamic", 0.992), candidate("fp32")], {"fp32": 5.0, "int8-dynamic": 4.95}))
    assert told["fp32"][0] == "Shipped"
    assert told["int8-dynamic"] == ("Passed", "passes and is as fast as onnxruntime fp32, which is the more accurate")


def test_each_bucket_has_its_own_winner_where_no_one_is_the_best_everywhere() -> None:
    tuned = candidate("fp16", ranges=(BatchRange(low=1, best=1, high=1),))
    all_of_them = [candidate("fp32"), candidate("int8-dynamic"), tuned]
    figures = heats({"fp32": 4.0, "int8-dynamic": 8.0}, {"fp32": 6.0, "int8-dynamic": 4.0},
                    {"fp32": 6.0, "int8-dynamic": 3.0})
    figures[1].times[tuned.name] = times(2.0)
    figures[1].live.append(tuned.name)
    judgement = judge(all_of_them, figures, 0.01)
    assert shipped(judgement) == {1: "fp16 @1", 8: "int8-dynamic", 32: "int8-dynamic"}
    assert {one.name: one.serves for one in judgement.candidates} == {
        "onnxruntime fp32": (), "onnxruntime int8-dynamic": (8, 32), "onnxruntime fp16 @1": (1,)}
    told = verdicts(judgement)
    assert told["fp16"][0] == "Shipped"
    assert told["fp16"][1].startswith("for batch 1: 5.00× the source model's throughput at batch 1; cosine lower bound")
    assert told["int8-dynamic"][1].startswith("for batches 2–32: 3.33× the source model's throughput at batch 32")
    assert told["fp32"] == ("Slower", "passes, but 2.00× slower than onnxruntime fp16 @1, at batch 1")


def test_a_tuned_candidate_ships_alone_only_if_it_takes_every_batch() -> None:
    narrow = candidate("fp16", ranges=(BatchRange(low=1, best=1, high=1),))
    figures = heats({"fp32": 5.0}, {"fp32": 5.0})
    figures[1].times[narrow.name] = times(4.95)
    assert judge([candidate("fp32", 0.995), narrow], figures, 0.01).shipped == {
        1: "onnxruntime fp32", 8: "onnxruntime fp32"}


def test_what_the_server_runs_itself_comes_before_python_where_both_are_as_fast() -> None:
    both = [candidate("fp32", 0.999), candidate("fp16", 0.998, triton="tensorrt")]
    judgement = run(both, {"fp32": 5.0, "fp16": 5.05})
    assert shipped(judgement) == {1: "fp16"}
    assert verdicts(judgement)["fp32"][1].endswith("run by the server without Python in between")


def test_buckets_above_the_latency_objective_decide_nothing() -> None:
    figures = heats({"fp32": 4.0, "int8-dynamic": 8.0}, {"fp32": 9.0, "int8-dynamic": 3.0})
    figures[8].used = False
    judgement = judge([candidate("fp32"), candidate("int8-dynamic")], figures, 0.01)
    assert judgement.used == (1,)
    assert shipped(judgement) == {1: "fp32", 8: "fp32"}


def test_who_lost_an_earlier_race_stays_lost() -> None:
    lost = replace(candidate("fp32"), lost="passes, but at best 3.00× slower than onnxruntime fp16, at batch 1")
    judgement = run([lost, candidate("fp16")], {"fp16": 5.0})
    assert verdicts(judgement)["fp32"] == ("Slower", lost.lost)


@pytest.mark.parametrize(("broken", "verdict"), [
    (replace(candidate("int8-dynamic"), failure="unsupported", accuracy=None, artifact=None), "Failed"),
    (candidate("int8-dynamic", finite=False), "AccuracyRefused"),
    (replace(candidate("int8-dynamic"), skipped="the time budget: 3 s of 60 s are left"), "Skipped"),
    (replace(candidate("int8-dynamic"), rung=Rung(backend="onnxruntime", precision="int8-dynamic",
                                                  unavailable="no calibration data")), "Skipped"),
], ids=["failed", "nan", "no time", "unavailable"])
def test_what_does_not_work_never_wins(broken: Candidate, verdict: str) -> None:
    judgement = run([candidate("fp32"), broken], {"fp32": 8.0, "int8-dynamic": 1.0})
    assert shipped(judgement) == {1: "fp32"}
    assert verdicts(judgement)["int8-dynamic"][0] == verdict
    assert verdicts(judgement)["int8-dynamic"][1]


class TestNothingPasses:
    def test_the_most_precise_is_offered_not_served(self) -> None:
        judgement = run([candidate("fp32", 0.98), candidate("int8-dynamic", 0.95)], {"fp32": 8.0, "int8-dynamic": 4.0})
        assert not judgement.shipped
        assert judgement.problem == "AccuracyNotReached"
        assert verdicts(judgement)["fp32"][0] == "Offered"
        assert "0.9800 < 0.99" in verdicts(judgement)["fp32"][1]
        assert verdicts(judgement)["int8-dynamic"][0] == "AccuracyRefused"

    def test_a_precision_that_was_not_asked_for_is_offered_never_shipped(self) -> None:
        figures = {"fp32": 2.0, "int8-dynamic": 4.0}
        refused = run([candidate("fp32", wanted=False), candidate("int8-dynamic", 0.95)], figures)
        assert not refused.shipped
        assert verdicts(refused)["fp32"][0] == "Offered"
        passing = run([candidate("fp32", wanted=False), candidate("int8-dynamic", 0.995)], figures)
        assert shipped(passing) == {1: "int8-dynamic"}
        assert verdicts(passing)["fp32"][0] == "Skipped"

    def test_nothing_at_all_works(self) -> None:
        judgement = run([replace(candidate("fp32"), failure="no kernel", accuracy=None, artifact=None)], {})
        assert not judgement.shipped
        assert verdicts(judgement)["fp32"] == ("Failed", "no kernel")

    def test_time_that_ran_out_is_the_reason_where_something_was_not_tried(self) -> None:
        late = Candidate(rung=Rung(backend="tensorrt", precision="fp16"), late=True,
                         skipped="the time budget: 0 s are left")
        judgement = run([candidate("fp32", wanted=False), late], {"fp32": 2.0})
        assert judgement.problem == "BudgetTooSmall"
        assert verdicts(judgement)["fp32"][0] == "Offered"

    def test_time_is_not_the_reason_where_another_try_was_not_worth_it(self) -> None:
        mended = Candidate(rung=Rung(backend="tensorrt", precision="int8"), skipped="others promised more")
        assert run([candidate("int8", 0.95), mended], {"int8": 2.0}).problem == "AccuracyNotReached"


class TestSlowerThanTheSource:
    def test_is_offered(self) -> None:
        judgement = run([candidate("fp32"), candidate("int8-dynamic")], {"fp32": 20.0, "int8-dynamic": 15.0})
        assert not judgement.shipped
        assert judgement.problem == "NotFasterThanSource"
        told = verdicts(judgement)
        assert told["fp32"][0] == "Offered"
        assert told["int8-dynamic"] == ("Slower", "passes, but 1.50× slower than the source model as it is, at batch 1")

    def test_in_one_bucket_alone_is_enough(self) -> None:
        judgement = run([candidate("fp32")], {"fp32": 5.0}, {"fp32": 12.0})
        assert judgement.problem == "NotFasterThanSource"

    @pytest.mark.parametrize(("factors", "ships"), [
        ((0.9, 1.2, 1.25, 1.3, 1.2, 1.15, 1.2), False), ((1.3, 1.02, 1.4), False),
        ((0.9, 1.02, 1.05, 1.1, 0.95, 1.0, 1.02), True)])
    def test_what_seems_slower_does_not_ship_though_time_ran_out_before_it_was_sure(
            self, factors: tuple[float, ...], ships: bool) -> None:
        raced = heats({"fp32": 10.0})
        raced[1].times = {REFERENCE: [10.0] * len(factors), "onnxruntime fp32": [10.0 * one for one in factors]}
        assert bool(judge([candidate("fp32")], raced, 0.01).shipped) is ships

    def test_the_source_itself_is_served_when_all_else_is_slower(self) -> None:
        """However a noisy machine measured it."""
        both = [candidate("fp32"), candidate("int8-dynamic", 0.995)]
        figures = {"fp32": 13.0, "int8-dynamic": 12.0}
        assert shipped(run(both, figures, itself="onnxruntime fp32")) == {1: "fp32"}
        assert not run([candidate("fp32", 0.9)], figures, itself="onnxruntime fp32").shipped

    def test_the_same_graph_measured_twice_is_not_slower_than_itself(self) -> None:
        assert shipped(run([candidate("fp32")], {"fp32": 10.1})) == {1: "fp32"}


def test_summaries_have_figures_where_there_are_any() -> None:
    timings = {batch: Timing(batch=batch, times_ms=tuple(times(batch * 1.0)), cold_ms=9.0) for batch in (1, 8)}
    summary = replace(candidate("fp32"), timings=timings, serves=(1, 8)).summary(8)
    assert summary.serves == (1, 8)
    assert summary.name == "onnxruntime fp32"
    assert summary.p50_ms == pytest.approx(8.0, rel=0.05)
    assert summary.throughput == pytest.approx(1000, rel=0.05)
    assert [(one.batch, one.low_ms <= one.p50_ms <= one.high_ms) for one in summary.buckets] == [(1, True), (8, True)]
    assert replace(candidate("fp32"), timings=timings).summary(32).batch == 8
    empty = Candidate(rung=Rung(backend="b", precision="p", unavailable="why")).summary(8)
    assert (empty.p50_ms, empty.accuracy, empty.size_bytes, empty.buckets) == (None, None, None, ())


def test_a_candidate_whose_worst_layers_were_kept_says_so() -> None:
    retried = replace(candidate("int8"), kept=("a", "b", "c"))
    assert retried.name == "onnxruntime int8 (kept 3 layers in higher precision)"
