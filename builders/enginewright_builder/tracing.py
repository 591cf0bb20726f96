"""A span for each step of a resolve or build Job, in the trace of the pass that made it: where the environment names an
OTLP endpoint (the operator writes it into the Job while it traces itself) and the packages are there. Nothing in here
fails a build."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from enginewright_builder.contract import Outcome, Progress
from enginewright_builder.progress import Sink

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

log = logging.getLogger(__name__)
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SERVICE: Final = "enginewright-builder"
# That the last spans may take on their way out: a build that is done is done, collector or not.
LAST_SECONDS: Final = 5.0
FINGERPRINT: Final = "enginewright.build.fingerprint"
CACHE_HIT: Final = "enginewright.build.cache_hit"
REASON: Final = "enginewright.build.reason"


class TracedSteps:
    """A sink that opens a span for each step of the progress that goes through it, below one for the whole Job."""

    def __init__(self, sink: Sink, tracer: Tracer, job: Span) -> None:
        self._sink, self._tracer, self._job = sink, tracer, job
        self._step: Span | None = None
        self._name = ""

    def progress(self, line: Progress) -> None:
        self._sink.progress(line)
        if line.step != self._name:
            self._next(line.step)

    def outcome(self, outcome: Outcome) -> None:
        self._sink.outcome(outcome)
        self._job.set_attributes({FINGERPRINT: outcome.fingerprint, CACHE_HIT: outcome.cache_hit})
        if outcome.error is not None:
            self._failed(outcome.error.reason, outcome.error.message)
        self._next("")

    def _next(self, name: str) -> None:
        """Steps follow each other: where one begins, the one before has ended. ``done`` takes no time."""
        from opentelemetry.trace import set_span_in_context

        if self._step is not None:
            self._step.end()
        around = set_span_in_context(self._job)
        self._step = self._tracer.start_span(name, context=around) if name not in ("", "done") else None
        self._name = name

    def _failed(self, reason: str, message: str) -> None:
        from opentelemetry.trace import StatusCode

        self._job.set_attribute(REASON, reason)
        for one in (self._step, self._job):
            if one is not None:
                one.set_status(StatusCode.ERROR, f"{reason}: {message}")


@contextlib.contextmanager
def tracing(kind: str, sink: Sink) -> Iterator[Sink]:
    """``sink``, with spans of what goes through it where that is asked for and possible."""
    if not any(os.environ.get(name) for name in ENDPOINTS):
        yield sink
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter()
    except Exception as error:
        log.warning("no traces: %s", error)
        yield sink
        return
    with recording(kind, sink, exporter) as traced:
        yield traced


@contextlib.contextmanager
def recording(kind: str, sink: Sink, exporter: SpanExporter) -> Iterator[Sink]:
    """Spans go to ``exporter`` in batches, the last of them when the block ends."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    about = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or SERVICE}
    provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    carrier = {name: os.environ.get(name.upper(), "") for name in ("traceparent", "tracestate")}
    tracer = provider.get_tracer("enginewright_builder")
    job = tracer.start_span(f"{kind} Job", context=TraceContextTextMapPropagator().extract(carrier))
    try:
        yield TracedSteps(sink, tracer, job)
    finally:
        job.end()
        sending = threading.Thread(target=provider.shutdown, daemon=True)
        sending.start()
        sending.join(LAST_SECONDS)
