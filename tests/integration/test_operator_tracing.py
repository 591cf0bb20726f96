"""Traces of a real operator process: passes over a real apiserver, sent over OTLP to a collector on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginewright.clients.kube import Object
from enginewright.clients.resources import JOB
from enginewright.core import labels
from enginewright.tracing import Attribute, Span
from enginewright_builder.contract import EXIT_USER
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import ROOT, OperatorProcess
from support.otlp import Collector, collecting

MINE = f"{labels.MODEL}=minilm"
# What containers without a device are told beside tracing.
NO_DEVICES = {"NVIDIA_VISIBLE_DEVICES"}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with collecting() as found:
        yield found


@pytest.fixture
def traced(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Collector:
    """Where programs that are started now send their spans, soon."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    return collector


@pytest.fixture
def operator(operator_kubeconfig: Path, namespace: str, tmp_path: Path) -> OperatorProcess:
    """Not started yet."""
    return OperatorProcess(operator_kubeconfig, namespace, tmp_path / "operator.log")


async def containers(models: Models) -> dict[str, Object]:
    """Of the model's Jobs, by step: the one that is named as it."""
    found = await models.kube.list_all(JOB, models.namespace, labels=MINE)
    pods = {one["metadata"]["labels"][labels.STEP]: one["spec"]["template"]["spec"] for one in found}
    return {step: one for step, pod in pods.items() for one in (*pod.get("initContainers", ()), *pod["containers"])
            if one["name"] == step}


async def test_passes_and_jobs_are_in_a_trace(
    operator: OperatorProcess, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path, traced: Collector,
) -> None:
    async with operator.running():
        await models.create(model())
        await models.wait("Ready", "True")

        async def sent() -> bool:
            return bool(traced.named("apply Deployment"))

        await eventually(sent)
        jobs = await containers(models)
        assert await operator.kill(signal.SIGTERM) == 0
    assert traced.paths == {"/v1/traces"}
    assert {one.service for one in traced.spans} == {"enginewright-operator"}

    passes = [one for one in traced.named(Span.RECONCILE)
              if (one.attributes[Attribute.OBJECT], one.attributes[Attribute.NAMESPACE]) == ("minilm", namespace)]
    whole = [one for one in passes if set(traced.below(one)) >= {Span.OBSERVE, Span.DECIDE, Span.ACT, Span.REPORT}]
    assert whole
    assert {one.attributes[Attribute.GENERATION] for one in whole} == {1}
    assert {one.parent for one in passes} == {""}

    # Each Job names the span that made it, which lies in a pass over this object.
    made = {one.id: one for one in traced.named("create Job")}
    for step in ("resolve", "build"):
        environment = {one["name"]: one["value"] for one in jobs[step]["env"]}
        assert environment.keys() == {"TRACEPARENT", "OTEL_EXPORTER_OTLP_ENDPOINT", *NO_DEVICES}
        _, trace, parent, _ = environment["TRACEPARENT"].split("-")
        assert made[parent].trace == trace
        assert trace in {one.trace for one in passes}
        assert f"-{step}-" in made[parent].attributes[Attribute.NAME]

    # A log line of a pass leads to its trace.
    lines = [json.loads(line) for line in (tmp_path / "operator.log").read_text().splitlines()]
    acts = [line for line in lines if line["event"] == "act" and line["kind"] == "Job"]
    assert {line["trace_id"] for line in acts} == {one.trace for one in made.values()}
    assert (kubelet.count("resolve"), kubelet.count("build")) == (1, 1)


async def test_the_builder_goes_on_with_the_trace(
    operator: OperatorProcess, models: Models, kubelet: FakeKubelet, tmp_path: Path, traced: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The real command in the environment that the apiserver holds. Its request is bad, which it says in its spans."""
    kubelet.script.resolve = "hold"
    async with operator.running():
        await models.create(model())

        async def job() -> Object | None:
            return (await containers(models)).get("resolve")

        container = await eventually(job)
        assert container is not None

        async def sent() -> bool:
            return len(traced.named("create Job")) == 2  # one asks the server image, and goes on with no trace

        await eventually(sent)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    (tmp_path / "request.json").write_text("{}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "builders"),
                   **{one["name"]: one["value"] for one in container["env"]}}
    # A machine that is busy elsewhere may take its time to send the last spans.
    program = ("import sys; from enginewright_builder import cli, tracing; tracing.LAST_SECONDS = 120.0;"
               "sys.exit(cli.main(sys.argv[1:]))")
    builder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, "resolve", f"--request={tmp_path / 'request.json'}", env=environment,
        stdout=asyncio.subprocess.DEVNULL)
    assert await builder.wait() == EXIT_USER
    (ran,) = traced.named("resolve Job")
    (made,) = (one for one in traced.named("create Job") if one.id == ran.parent)
    assert (ran.service, ran.trace, ran.failed) == ("enginewright-builder", made.trace, True)


async def test_off_by_default(
    operator: OperatorProcess, models: Models, kubelet: FakeKubelet, tmp_path: Path, collector: Collector,
) -> None:
    async with operator.running():
        await models.create(model())
        await models.wait("Ready", "True")
        told = {one["name"] for container in (await containers(models)).values() for one in container.get("env", ())}
        assert told == NO_DEVICES
        assert await operator.kill(signal.SIGTERM) == 0
    assert "trace_id" not in (tmp_path / "operator.log").read_text()
    assert collector.spans == []
