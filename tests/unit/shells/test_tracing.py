"""Traces of passes: the tree that one pass gives, what marks a span as failed, and that nothing is there when off."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from enginewright import logs, tracing
from enginewright.act.execute import Actor
from enginewright.act.traced import traced
from enginewright.clients.errors import TransientError
from enginewright.clients.kube import KubeClient
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import no_devices
from enginewright.core.plan import Apply, Create
from enginewright.observe.keys import Key
from enginewright.reconcile.exposed import Exposed
from enginewright.reconcile.passes import Parts, Reconciler
from enginewright.tracing import Attribute, Span, span
from support.cluster import SPEC, Cluster

ROOT = Path(__file__).resolve().parents[3]
ENDPOINT = "http://collector.test:4318"
KEY = Key("prod", "minilm")
AGAIN = 7.0


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    # A machine that is busy elsewhere may take its time.
    monkeypatch.setattr(tracing, "LAST_SECONDS", 120.0)


def names(spans: list[ReadableSpan], parent: ReadableSpan | None) -> list[str]:
    wanted = parent.context.span_id if parent else None
    children = [one for one in spans if (one.parent.span_id if one.parent else None) == wanted]
    return [one.name for one in sorted(children, key=lambda one: one.start_time or 0)]


def named(spans: list[ReadableSpan], name: str) -> ReadableSpan:
    (found,) = [one for one in spans if one.name == name]
    return found


class Kube:
    """Takes what is created; ``refuses`` one kind."""

    def __init__(self, refuses: str = "") -> None:
        self.created: list[Mapping[str, Any]] = []
        self._refuses = refuses

    async def create(self, manifest: Mapping[str, Any], *, namespace: str) -> None:
        if manifest["kind"] == self._refuses:
            raise TransientError("overloaded", call=f"POST {namespace}", status=503)
        self.created.append(manifest)


def one_pass(kube: Kube) -> None:
    """Of a real decision about an object that nobody has looked at yet."""
    cluster = Cluster(spec=SPEC)

    async def gives(value: object) -> object:
        return value

    parts = SimpleNamespace(
        world=SimpleNamespace(find=lambda *_, fresh=True: gives(cluster.view() if fresh else None),
                              observe=lambda *_: gives(cluster.observe()), confirm=lambda *_: gives(False)),
        actor=Actor(cast(KubeClient, kube), lambda *_: None),
        reporter=SimpleNamespace(status=lambda view, _: gives(replace(view, resource_version="2")),
                                 events=lambda *_: gives(None)),
        signals=SimpleNamespace(window=lambda _: None, watch=lambda *_: None, forget=lambda _: gives(None),
                                recommend=lambda *_: None),
        known=SimpleNamespace(remember=lambda *_: None), exposed=Exposed(), config=OperatorConfig(),
        looked=lambda _: None, urgent=lambda: False,
        decide=lambda *_: replace(cluster.plan(), requeue_after=AGAIN))
    asyncio.run(_run(Reconciler(cast(Parts, parts))))


async def _run(reconciler: Reconciler) -> None:
    await reconciler.reconcile(KEY)


def recorded(kube: Kube, *, fails: bool = False) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    with tracing.recording(exporter):
        if fails:
            with pytest.raises(TransientError):
                one_pass(kube)
        else:
            one_pass(kube)
    return list(exporter.get_finished_spans())


def test_a_pass_is_a_tree() -> None:
    spans = recorded(Kube())
    assert names(spans, None) == [Span.RECONCILE]
    root = named(spans, Span.RECONCILE)
    assert names(spans, root) == [Span.OBSERVE, Span.DECIDE, Span.ACT, Span.REPORT]
    assert dict(named(spans, Span.OBSERVE).attributes or {}) == {Attribute.FRESH: True}
    assert names(spans, named(spans, Span.ACT)) == ["create ConfigMap", "create Job"]
    about = dict(root.attributes or {})
    assert len(str(about.pop(Attribute.RECONCILE_ID))) == 12
    assert about == {Attribute.NAMESPACE: "prod", Attribute.OBJECT: "minilm", Attribute.GENERATION: 1,
                     Attribute.OUTCOME: "ok", Attribute.REQUEUE_AFTER: AGAIN}
    assert dict(named(spans, Span.DECIDE).attributes or {}) == {Attribute.ACTIONS: 2}
    assert dict(named(spans, Span.REPORT).attributes or {}) == {Attribute.STATUS_WRITTEN: True}
    job = dict(named(spans, "create Job").attributes or {})
    assert (job[Attribute.VERB], job[Attribute.KIND], job[Attribute.CHANGED]) == ("create", "Job", True)
    assert str(job[Attribute.NAME]).startswith("minilm-resolve-")
    assert "digests" in str(job[Attribute.WHY])
    assert all(one.status.is_unset for one in spans)
    assert {one.resource.attributes["service.name"] for one in spans} == {"enginewright-operator"}


def test_an_action_that_fails_marks_its_span_and_those_around_it() -> None:
    spans = recorded(Kube(refuses="Job"), fails=True)
    failed = {one.name for one in spans if not one.status.is_ok and not one.status.is_unset}
    assert failed == {"create Job", Span.ACT, Span.RECONCILE}
    assert "overloaded" in str(named(spans, "create Job").status.description)
    assert [event.name for event in named(spans, "create Job").events] == ["exception"]
    assert Attribute.CHANGED not in (named(spans, "create Job").attributes or {})
    assert (named(spans, Span.RECONCILE).attributes or {})[Attribute.OUTCOME] == "transient"
    assert named(spans, Span.REPORT).status.is_unset, "what was observed is reported all the same"


def test_the_job_goes_on_with_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ENDPOINT)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
    on, off = Kube(), Kube()
    spans = recorded(on)
    one_pass(off)
    made = named(spans, "create Job").context
    job, plain = on.created[1], off.created[1]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [
        no_devices(),
        {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": ENDPOINT},
        {"name": "TRACEPARENT", "value": f"00-{made.trace_id:032x}-{made.span_id:016x}-{made.trace_flags:02x}"},
    ]
    assert "secret" not in json.dumps(job)
    # All else, names and the hash of the manifest among it, is what it is without.
    container["env"] = [no_devices()]
    assert job == plain
    assert on.created[0] == off.created[0], "the request, from which the fingerprint is"


def test_what_is_not_recorded_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    kube = Kube()
    assert recorded(kube) == []
    assert kube.created[1]["spec"]["template"]["spec"]["containers"][0]["env"] == [no_devices()]


@pytest.mark.parametrize("labels", [{}, {"enginewright.io/step": "gc"}])
def test_other_jobs_are_left_as_they_are(labels: dict[str, str]) -> None:
    manifest = {"kind": "Job", "metadata": {"name": "a", "labels": labels}, "spec": {}}
    assert traced(manifest, {"TRACEPARENT": "00-1-1-01"}) is manifest


def test_a_variable_that_the_user_gave_stays() -> None:
    given = {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://mine:4318"}
    manifest = {"kind": "Job", "metadata": {"name": "a", "labels": {"enginewright.io/step": "build"}},
                "spec": {"template": {"spec": {"containers": [{"name": "build", "env": [given]}]}}}}
    made = traced(manifest, {given["name"]: "http://site:4318", "TRACEPARENT": "00-1-1-01"})
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [given, {"name": "TRACEPARENT", "value": "00-1-1-01"}]


def test_what_is_applied_does_not_differ_from_pass_to_pass() -> None:
    applied: list[Mapping[str, Any]] = []

    class Applying:
        async def apply(self, manifest: Mapping[str, Any], **_: object) -> None:
            applied.append(manifest)

    manifest = {"kind": "Job", "metadata": {"name": "a", "labels": {"enginewright.io/step": "build"}}}
    actor = Actor(cast(KubeClient, Applying()), lambda *_: None)
    with tracing.recording(InMemorySpanExporter()), span(Span.RECONCILE):
        asyncio.run(actor.execute("prod", [Apply(manifest=manifest, why="")], structlog.get_logger()))
    assert applied == [manifest]


@pytest.mark.usefixtures("logging_as_it_was")
def test_a_log_line_names_the_trace_while_a_span_is_recorded() -> None:
    stream, exporter = io.StringIO(), InMemorySpanExporter()
    logs.set_up("INFO", stream)
    log = structlog.get_logger("test")
    log.info("before")
    with tracing.recording(exporter):
        log.info("outside")
        with span(Span.RECONCILE):
            log.info("inside")
    before, outside, inside = (json.loads(line) for line in stream.getvalue().splitlines())
    (only,) = exporter.get_finished_spans()
    assert "trace_id" not in before
    assert "trace_id" not in outside
    assert inside["trace_id"] == f"{only.context.trace_id:032x}"
    assert inside["span_id"] == f"{only.context.span_id:016x}"


@pytest.mark.parametrize(("value", "imported"), [("", False), (ENDPOINT, True)])
def test_off_imports_nothing(value: str, imported: bool) -> None:
    """In a process of its own: this one has imported everything."""
    program = (
        "import sys, enginewright.cli, enginewright.runtime; from enginewright import tracing\n"
        "with tracing.exporting():\n"
        "    with tracing.span('x'): assert bool(tracing.handed_on()) == bool(tracing.identity())\n"
        "print(any(name.startswith('opentelemetry') for name in sys.modules))")
    # Spans that are not sampled are not sent: nobody is at the endpoint.
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": value, "OTEL_TRACES_SAMPLER": "always_off",
                   "PYTHONPATH": os.pathsep.join((str(ROOT / "operator"), str(ROOT / "builders")))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=240,
                          check=True)
    assert done.stdout.strip() == str(imported)


@pytest.mark.parametrize(("endpoint", "says"), [
    ("collector:4318", "got 'collector:4318', expected a URL such as http://"),
    ("grpc://collector:4317", "got 'grpc://collector:4317', expected a URL"),
    ("http://", "got 'http://', expected a URL"),
    ("http://collector:x", "got 'http://collector:x', expected a URL"),
    ("http://[", "got 'http://[', expected a URL"),
    ("https://me:hunter2@collector", "write them into OTEL_EXPORTER_OTLP_HEADERS"),
])
@pytest.mark.parametrize("name", tracing.ENDPOINTS)
def test_an_endpoint_that_is_none(monkeypatch: pytest.MonkeyPatch, name: str, endpoint: str, says: str) -> None:
    monkeypatch.setenv(name, endpoint)
    with pytest.raises(tracing.TracingError) as caught, tracing.exporting():
        pytest.fail("accepted")
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{name}: ")
    assert "hunter2" not in str(caught.value)


def test_without_the_package_the_operator_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ENDPOINT)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(tracing.TracingError, match=r"install enginewright\[tracing\]"), tracing.exporting():
        pytest.fail("accepted")


def test_tracing_ends_with_its_block() -> None:
    exporter = InMemorySpanExporter()
    with tracing.recording(exporter), span("in"):
        assert tracing.identity()
    with span("after"):
        assert tracing.identity() == {}
    assert [one.name for one in exporter.get_finished_spans()] == ["in"]


def test_an_exporter_that_never_ends_keeps_no_operator_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = Endless()
    monkeypatch.setattr(tracing, "LAST_SECONDS", 0.01)
    with tracing.recording(exporter), span("last"):
        pass
    assert exporter.asked.wait(60), "it was tried"
    exporter.over.set()


class Endless(SpanExporter):
    """Does not shut down before it is ``over``."""

    def __init__(self) -> None:
        self.asked, self.over = threading.Event(), threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.asked.set()
        self.over.wait()


def test_a_create_alone_is_enough_for_a_job() -> None:
    """Jobs are never applied: should that change, ``traced`` must go."""
    cluster = Cluster(spec=SPEC)
    jobs = [action for action in cluster.plan().actions
            if isinstance(action, Apply | Create) and action.manifest["kind"] == "Job"]
    assert [type(action) for action in jobs] == [Create]
