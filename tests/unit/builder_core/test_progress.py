"""Progress lines, steps, budget, errors' families."""

from __future__ import annotations

import errno
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.contract import BUILD_STEPS, ContractError, Outcome
from enginewright_builder.errors import TransientError, UserError, brief, classify, first_line, known_or, last_line
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.steps import Budget, Steps

STEP_NAMES = [name for name in BUILD_STEPS if name != "done"]


@given(st.lists(st.tuples(st.sampled_from(STEP_NAMES), st.floats(-1, 2)), max_size=30))
def test_progress_never_goes_back_and_stays_within_one(reports: list[tuple[str, float]]) -> None:
    stream = io.StringIO()
    tracker = Tracker(JsonLines(stream))
    for name, fraction in reports:
        tracker.step(name)(fraction, "x")
    fractions = [json.loads(line)["fraction"] for line in stream.getvalue().splitlines()]
    assert fractions == sorted(fractions)
    assert all(0 <= fraction <= 1 for fraction in fractions)


def test_lines_are_json_with_step_fraction_and_detail() -> None:
    stream = io.StringIO()
    tracker = Tracker(JsonLines(stream))
    tracker.step("export", "to ONNX")(0.5, "half")
    tracker.note("by the way")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["detail"] for line in lines] == ["to ONNX", "half", "by the way"]
    assert {(line["event"], line["step"]) for line in lines} == {("progress", "export")}
    assert BUILD_STEPS["export"] < lines[1]["fraction"] < BUILD_STEPS["ladder"]


def test_steps_take_their_times() -> None:
    steps = Steps(Tracker(JsonLines(io.StringIO())))
    with steps.step("export"):
        pass
    with pytest.raises(ValueError, match="boom"), steps.step("ladder"):
        raise ValueError("boom")
    assert set(steps.seconds) == {"export", "ladder"}


def test_the_budget_shrinks_measurements_to_a_floor_never_to_nothing() -> None:
    now = [0.0]
    budget = Budget(100.0, clock=lambda: now[0])
    assert budget.share(0.1, (2.0, 60.0)) == pytest.approx(10.0)
    now[0] = 50.0
    assert budget.share(0.1, (2.0, 60.0)) == pytest.approx(5.0)
    now[0] = 500.0
    assert budget.share(0.1, (2.0, 60.0)) == 2.0
    assert Budget(1e6).share(0.1, (2.0, 60.0)) == 60.0


@pytest.mark.parametrize(("error", "family", "reason"), [
    (UserError("X", "x"), "user", "X"), (TransientError("Y", "y"), "transient", "Y"),
    (ContractError("bad"), "user", "RequestInvalid"), (MemoryError(), "transient", "OutOfMemory"),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "transient", "OutOfMemory"),
    (OSError(errno.ENOSPC, "No space left on device", "/store/x"), "user", "StoreFull"),
    (OSError(errno.EDQUOT, "Quota exceeded"), "user", "StoreFull"),
    (OSError(errno.EROFS, "Read-only file system", "/store"), "user", "StoreReadOnly"),
    (OSError(errno.EIO, "Input/output error"), "transient", "StorageUnavailable"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "transient", "OutOfMemory"),
    (KeyboardInterrupt(), "transient", "Interrupted"), (KeyError("z"), "bug", "InternalError"),
    (OSError(errno.EBADF, "Bad file descriptor"), "bug", "InternalError"),
])
def test_every_error_has_a_family(error: BaseException, family: str, reason: str) -> None:
    known = classify(error)
    assert (known.family, known.reason) == (family, reason)
    assert known.report().message


@pytest.mark.parametrize(("error", "reason"), [
    (RuntimeError("Failed to allocate memory for requested buffer of size 8"), "OutOfMemory"),
    (MemoryError(), "OutOfMemory"), (OSError(errno.ENOSPC, "No space left on device"), "StoreFull"),
    (ValueError("odd"), "UnsupportedModel"), (OSError("no file called config.json"), "UnsupportedModel"),
])
def test_a_model_is_not_blamed_for_its_machine(error: Exception, reason: str) -> None:
    assert known_or(error, UserError("UnsupportedModel", "it cannot be opened")).reason == reason


@pytest.mark.parametrize(("error", "first", "last", "whole"), [
    (ValueError("\n  first \nsecond"), "first", "second", "first second"),
    (AssertionError(), "AssertionError", "AssertionError", "AssertionError"),
    (ValueError("https://user:secret@host/x"), *3 * ("https://***@host/x",)),
])
def test_errors_are_quoted_in_a_line(error: Exception, first: str, last: str, whole: str) -> None:
    assert (first_line(error), last_line(error), brief(error)) == (first, last, whole)


def test_the_outcome_is_one_line() -> None:
    stream = io.StringIO()
    JsonLines(stream).outcome(Outcome(kind="build", ok=True))
    assert Outcome.from_json(stream.getvalue()) == Outcome(kind="build", ok=True)
    assert stream.getvalue().count("\n") == 1


def test_colours_of_a_terminal_stay_out_of_messages() -> None:
    """PyTorch's exporter writes them, and a condition of an object would show their codes."""
    error = RuntimeError("Failed. \x1b[96mThis is step 1/3\x1b[0m of exporting\n\x1b[1;31mmore\x1b[m")
    assert brief(error) == "Failed. This is step 1/3 of exporting more"


@pytest.mark.parametrize(("inside", "left"), [
    ("core/providers/cpu/tensor/reshape_helper.h:91 onnxruntime::ReshapeHelper::ReshapeHelper(const "
     "onnxruntime::TensorShape&, onnxruntime::TensorShapeVector&, bool) size == wanted was false. ",
     "size == wanted was false."),
    ("core/graph/graph.cc:1587 void onnxruntime::Graph::Load() The model is invalid. ", "The model is invalid."),
    ("a.cc:1 void f(std::function<void(int)>, T&&) const [with T = int] It is odd (1). ", "It is odd (1)."),
])
def test_signatures_of_onnx_runtime_stay_out_of_messages(inside: str, left: str) -> None:
    """They are so long that what is wrong, which comes behind them, would be cut off."""
    assert brief(RuntimeError(f"FAIL : /onnxruntime_src/onnxruntime/{inside}")) == f"FAIL : {left}"
