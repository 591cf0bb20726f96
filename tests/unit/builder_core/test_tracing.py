"""Steps of a build as spans in the trace that the Job was given."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from enginewright_builder.contract import EXIT_OK, BuildRequest, ErrorReport, Outcome
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.tracing import CACHE_HIT, FINGERPRINT, REASON, recording, tracing
from support.otlp import collecting

Make = Callable[..., BuildRequest]
BUILDERS = str(Path(sys.modules["enginewright_builder"].__path__[0]).parent)
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRACEPARENT", f"00-{TRACE}-{PARENT}-01")
    # A machine that is busy elsewhere may take its time.
    monkeypatch.setattr("enginewright_builder.tracing.LAST_SECONDS", 120.0)


def record(*steps: str, outcome: Outcome) -> tuple[list[ReadableSpan], list[str]]:
    """The spans, and the lines that went on to where they always go."""
    exporter, stream = InMemorySpanExporter(), io.StringIO()
    with recording("build", JsonLines(stream), exporter) as sink:
        tracker = Tracker(sink)
        for step in steps:
            report = tracker.step(step)
            report(0.5, "half way")
            tracker.note("still there")
        sink.outcome(outcome)
    return list(exporter.get_finished_spans()), stream.getvalue().splitlines()


def test_steps_are_spans_below_the_job_in_the_trace_that_was_given() -> None:
    spans, lines = record("resolve", "export", "ladder", "publish", "done",
                          outcome=Outcome(kind="build", ok=True, fingerprint="ab", cache_hit=False))
    *steps, job = spans
    assert [one.name for one in steps] == ["resolve", "export", "ladder", "publish"]
    assert job.name == "build Job"
    assert job.parent is not None
    assert (f"{job.parent.trace_id:032x}", f"{job.parent.span_id:016x}") == (TRACE, PARENT)
    for one, following in zip(steps, [*steps[1:], job], strict=True):
        assert one.parent is not None
        assert one.parent.span_id == job.context.span_id
        assert (one.end_time or 0) <= (following.end_time or 0)
    assert dict(job.attributes or {}) == {FINGERPRINT: "ab", CACHE_HIT: False}
    assert all(one.status.is_unset for one in spans)
    assert {one.resource.attributes["service.name"] for one in spans} == {"enginewright-builder"}
    assert len(lines) == 3 * 5 + 1


def test_a_step_that_fails_is_marked_with_the_reason() -> None:
    error = ErrorReport(family="user", reason="AccuracyBelowTolerance", message="too far off")
    spans, _ = record("resolve", "ladder", outcome=Outcome(kind="build", ok=False, error=error))
    assert {one.name: one.status.status_code for one in spans} == {
        "resolve": StatusCode.UNSET, "ladder": StatusCode.ERROR, "build Job": StatusCode.ERROR}
    assert spans[-1].status.description == "AccuracyBelowTolerance: too far off"
    assert (spans[-1].attributes or {})[REASON] == "AccuracyBelowTolerance"


@pytest.mark.parametrize("given", ["", "nonsense"])
def test_without_a_trace_to_go_on_with_it_begins_one(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("TRACEPARENT", given)
    spans, _ = record("resolve", outcome=Outcome(kind="build", ok=True))
    assert spans[-1].parent is None


def test_without_an_endpoint_nothing_stands_between() -> None:
    sink = JsonLines(io.StringIO())
    with tracing("build", sink) as same:
        assert same is sink


def test_without_the_packages_it_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.test:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    sink = JsonLines(io.StringIO())
    with tracing("build", sink) as same:
        assert same is sink
    assert "no traces" in caplog.text


@pytest.mark.parametrize("traced", [True, False])
def test_a_job_sends_its_steps(perceptron: Path, request_for: Make, tmp_path: Path, traced: bool) -> None:
    """The command itself, as a Job runs it. Without an endpoint it says the same and imports nothing of it."""
    (tmp_path / "request.json").write_text(request_for(perceptron).to_json())
    program = ("import sys; from enginewright_builder import tracing; tracing.LAST_SECONDS = 120.0;"
               "from enginewright_builder.cli import main; code = main(sys.argv[1:]);"
               "print(any(name.startswith('opentelemetry') for name in sys.modules), file=sys.stderr); sys.exit(code)")
    with collecting() as collector:
        environment = {**os.environ, "PYTHONPATH": BUILDERS, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
                       "ENGINEWRIGHT_TERMINATION_LOG": str(tmp_path / "termination")}
        if not traced:
            del environment["OTEL_EXPORTER_OTLP_ENDPOINT"]
        done = subprocess.run([sys.executable, "-c", program, "resolve", "--request", str(tmp_path / "request.json")],
                              env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_OK, done.stderr
    assert done.stderr.splitlines()[-1] == str(traced)
    assert Outcome.from_json((tmp_path / "termination").read_text()).ok
    assert {one.trace for one in collector.spans} == ({TRACE} if traced else set())
    if traced:
        (job,) = collector.named("resolve Job")
        assert (job.parent, collector.below(job)) == (PARENT, ["resolve"])


def test_a_collector_that_is_not_there_fails_no_job(perceptron: Path, request_for: Make, tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(request_for(perceptron).to_json())
    with collecting() as collector:
        gone = collector.endpoint
    environment = {**os.environ, "PYTHONPATH": BUILDERS, "OTEL_EXPORTER_OTLP_ENDPOINT": gone,
                   "OTEL_EXPORTER_OTLP_TIMEOUT": "0.5"}
    done = subprocess.run(
        [sys.executable, "-m", "enginewright_builder", "resolve", "--request", str(tmp_path / "request.json")],
        env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_OK, done.stderr
    assert Outcome.from_json(done.stdout.splitlines()[-1]).ok
