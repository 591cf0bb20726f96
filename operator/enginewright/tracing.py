"""Traces of passes by OpenTelemetry: off, and nothing of it imported, unless the environment names an endpoint.

Shells open spans with :func:`span`, which costs a comparison while tracing is off. The SDK reads all its other settings
from the environment, too: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from enginewright import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

# The signal's own wins over that of all signals, as the SDK has it.
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SERVICE: Final = "enginewright-operator"
# That the last spans may take on their way out: an operator that gets a signal stops, collector or not.
LAST_SECONDS: Final = 5.0
Value = str | bool | int | float
_tracer: Tracer | None = None


class Span(StrEnum):
    """The name of an action's span is its verb and its kind (``create Job``)."""

    RECONCILE = "reconcile"
    OBSERVE = "observe"
    DECIDE = "decide"
    ACT = "act"
    REPORT = "report"


class Attribute(StrEnum):
    NAMESPACE = "k8s.namespace.name"
    OBJECT = "enginewright.object"
    GENERATION = "enginewright.generation"
    RECONCILE_ID = "enginewright.reconcile.id"
    OUTCOME = "enginewright.outcome"
    REQUEUE_AFTER = "enginewright.requeue_after"
    FRESH = "enginewright.fresh"
    ACTIONS = "enginewright.actions"
    VERB = "enginewright.action.verb"
    KIND = "enginewright.action.kind"
    NAME = "enginewright.action.name"
    WHY = "enginewright.action.why"
    CHANGED = "enginewright.action.changed"
    STATUS_WRITTEN = "enginewright.status_written"


class TracingError(ValueError):
    """The message names the variable, its value and what to write instead."""


@contextmanager
def span(name: str, attributes: Mapping[Attribute, Value] | None = None) -> Iterator[None]:
    """A child of the span around it. What is raised in the block marks it as failed."""
    if _tracer is None:
        yield
        return
    with _tracer.start_as_current_span(name, attributes={str(key): value for key, value in (attributes or {}).items()}):
        yield


def note(attribute: Attribute, value: Value) -> None:
    """Something about the innermost open span that was not known when it was opened."""
    if _tracer is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().set_attribute(attribute, value)


def identity() -> dict[str, str]:
    """``trace_id`` and ``span_id`` of the span that is being recorded, for a log line; empty when there is none."""
    if _tracer is None:
        return {}
    from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

    current = get_current_span()
    if not current.is_recording():
        return {}
    context = current.get_span_context()
    return {"trace_id": format_trace_id(context.trace_id), "span_id": format_span_id(context.span_id)}


def handed_on() -> dict[str, str]:
    """Environment in which another process goes on with the trace of the innermost open span: ``TRACEPARENT`` (W3C
    Trace Context) and where to send spans. Empty when none is recorded. Headers, which may hold secrets, stay here."""
    if not identity():
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    carried = {name.upper(): value for name, value in carrier.items()}
    return carried | {name: os.environ[name] for name in ENDPOINTS if os.environ.get(name)}


@contextmanager
def exporting() -> Iterator[None]:
    """Spans of the block are sent to the endpoint that the environment names; without one, there are none. Raises
    :class:`TracingError`."""
    named = next((name for name in ENDPOINTS if os.environ.get(name)), None)
    if named is None:
        yield
        return
    _check(named, os.environ[named])
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise TracingError(f"{named}: got {os.environ[named]!r}, but {error.name} is not installed; install "
                           f"enginewright[tracing], or leave {named} empty") from error
    with recording(OTLPSpanExporter()):
        yield


@contextmanager
def recording(exporter: SpanExporter) -> Iterator[None]:
    """Spans of the block go to ``exporter`` in batches, the last of them when it ends."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    global _tracer
    about = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or SERVICE, "service.version": __version__}
    provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = provider.get_tracer("enginewright", __version__)
    try:
        yield
    finally:
        _tracer = None
        sending = threading.Thread(target=provider.shutdown, daemon=True)
        sending.start()
        sending.join(LAST_SECONDS)


def _check(name: str, endpoint: str) -> None:
    if "@" in endpoint:
        raise TracingError(f"{name}: holds credentials, which build pods would expose; write them into "
                           f"OTEL_EXPORTER_OTLP_HEADERS, from a Secret")
    try:
        parts = urlsplit(endpoint)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise TracingError(f"{name}: got {endpoint!r}, expected a URL such as http://collector.observability:4318")
