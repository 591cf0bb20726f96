"""What a build that ends with nothing to serve tells its user to do: only what could help here."""

from __future__ import annotations

import pytest

from enginewright_builder.competition.refusals import accuracy_not_reached, not_faster_than_source
from enginewright_builder.contract import AccuracyRequest, CandidateSummary, Verdict

ACCURACY = AccuracyRequest(tolerance=0.01)
NO_DATA = "no calibration data: give spec.engine.calibration, apart from the evaluation data"
SOURCE = "; or write spec.engine.fallback: source to serve the source model itself"


def candidate(precision: str, verdict: Verdict, reason: str = "") -> CandidateSummary:
    measured = verdict != "Skipped"
    return CandidateSummary(backend="onnxruntime", precision=precision, name=f"onnxruntime {precision}", batch=8,
                            verdict=verdict, reason=reason, accuracy=0.98 if measured else None,
                            accuracy_low=0.97 if measured else None)


SLOWER = candidate("fp32", "Slower")
REFUSED = candidate("int8-dynamic", "AccuracyRefused")
SKIPPED = candidate("int8-static", "Skipped", NO_DATA)


@pytest.mark.parametrize(("candidates", "precision", "remedy"), [
    ((SLOWER,), "auto", "build on other hardware"),
    ((SLOWER,), "fp32", "allow more precisions (spec.engine.precision: auto), or build on other hardware"),
    ((SLOWER, REFUSED), "auto", "raise spec.accuracy.maxLoss from 0.01, which refused candidates, or build on other "
                                "hardware"),
    ((SLOWER, REFUSED, SKIPPED), "auto", "raise spec.accuracy.maxLoss from 0.01, which refused candidates, give "
                                         "spec.engine.calibration, which 8-bit candidates need, or build on other "
                                         "hardware"),
], ids=["nothing else", "one precision", "refused", "refused and without data"])
def test_where_none_is_faster(candidates: tuple[CandidateSummary, ...], precision: str, remedy: str) -> None:
    assert not_faster_than_source(candidates, ACCURACY, precision).remedy == remedy + SOURCE


def test_what_there_was_no_time_for_is_the_first_to_try() -> None:
    late = ("onnxruntime int8-dynamic", "onnxruntime fp16")
    assert not_faster_than_source((SLOWER, SKIPPED), ACCURACY, "auto", late).remedy == (
        "raise spec.engine.buildBudgetSeconds, which left no time for onnxruntime int8-dynamic, onnxruntime fp16, give "
        "spec.engine.calibration, which 8-bit candidates need, or build on other hardware" + SOURCE)


@pytest.mark.parametrize(("candidates", "precision", "remedy"), [
    ((REFUSED,), "auto", "raise it, or give more evaluation samples"),
    ((REFUSED, SKIPPED), "int8", "raise it, give spec.engine.calibration, which 8-bit candidates need, allow more "
                                 "precisions (spec.engine.precision: auto), or give more evaluation samples"),
], ids=["nothing else", "without data"])
def test_where_none_is_accurate(candidates: tuple[CandidateSummary, ...], precision: str, remedy: str) -> None:
    error = accuracy_not_reached(candidates, ACCURACY, {one.name for one in candidates}, precision)
    assert (error.field, error.value) == ("spec.accuracy.maxLoss", "0.01")
    assert error.remedy == remedy + SOURCE


def test_candidates_that_failed_are_told_with_their_reasons() -> None:
    failed = CandidateSummary(backend="onnxruntime", precision="int8-dynamic", name="onnxruntime int8-dynamic", batch=8,
                              verdict="Failed", reason="shapes differ", accuracy=None, accuracy_low=None)
    error = accuracy_not_reached((failed, candidate("fp32", "Offered")), ACCURACY, {failed.name}, "int8")
    assert error.message == ("no candidate asked for could be measured: onnxruntime int8-dynamic: shapes differ; "
                             "offered instead: onnxruntime fp32")
    assert (error.field, error.value) == ("spec.engine.precision", "int8")
    assert error.remedy == ("allow more precisions (spec.engine.precision: auto), or change the model by what the "
                            "reasons say" + SOURCE)
