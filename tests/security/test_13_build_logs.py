"""Finding 13: passes wait for the logs of builds, so that builds on nodes that do not answer hold up every object."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, cast
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes.aio.client.configuration import Configuration

from enginewright.clients.errors import TransientError
from enginewright.clients.kube import KubeClient
from enginewright.clients.probe import ProbeClient
from enginewright.clients.prometheus import PrometheusClient
from enginewright.clients.triton import TritonClient
from enginewright.core.config import OperatorConfig
from enginewright.core.observed import ObjectView, Observed
from enginewright.observe import reports
from enginewright.observe.keys import Key
from enginewright.observe.reports import JobReports, PodLog, Said
from enginewright.observe.world import World
from enginewright.reconcile.log_reader import BACKOFF, LogReader
from enginewright.reconcile.metrics import Metrics
from enginewright.runtime import Operator, Options
from enginewright_builder import contract
from enginewright_builder.contract import ErrorReport, Outcome, Progress, dumps
from support.cluster import SPEC
from support.http_server import Handler, answering

DEAD = [f"dead-{number}" for number in range(12)]
HALF = Progress(step="sweep", fraction=0.5)
GOOD = Outcome(kind="build", ok=True, fingerprint="f" * 64)
BAD = Outcome(kind="build", ok=False, error=ErrorReport(family="user", reason="DigestMismatch", message="another"))


def meta(name: str, model: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "prod", "uid": f"uid of {name}", "creationTimestamp": "2026-11-24T00:00:00Z",
            "labels": {"enginewright.io/model": model, "batch.kubernetes.io/job-name": f"{model}-build"}, **more}


def job(model: str, **status: Any) -> dict[str, Any]:
    owner = {"apiVersion": "enginewright.io/v1alpha1", "kind": "OptimisedModel", "name": model, "uid": f"u-{model}"}
    return {"metadata": meta(f"{model}-build", model, ownerReferences=[owner]), "status": status or {"active": 1}}


def pod(model: str, phase: str = "Running", **more: Any) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"{model}-build", "uid": f"uid of {model}-build",
             "controller": True}
    return {"metadata": meta(f"{model}-pod", model, ownerReferences=[owner], **more),
            "spec": {"containers": [{"name": "build"}]},
            "status": {"phase": phase, "containerStatuses": [{"name": "build", "ready": phase == "Running"}]}}


class Apiserver(Handler):
    """Each object has a build Job and its pod. Logs of pods on dead nodes never come."""

    ended: frozenset[str]
    released: threading.Event
    logs: list[str]
    text: str

    def answer(self, body: bytes) -> None:
        url = urlsplit(self.path)
        if url.path.endswith("/log"):
            self._log(url.path.split("/")[-2].removesuffix("-pod"))
            return
        model = parse_qs(url.query).get("labelSelector", [""])[0].removeprefix("enginewright.io/model=")
        over = model in self.ended
        items = {"jobs": [job(model, **({"conditions": [{"type": "Failed", "status": "True"}]} if over else {}))],
                 "pods": [pod(model, "Failed" if over else "Running")]}
        found = items.get(url.path.rpartition("/")[2], []) if "," not in model else []
        self.send(HTTPStatus.OK, json.dumps({"items": found}).encode(), {"Content-Type": "application/json"})

    def _log(self, model: str) -> None:
        self.logs.append(model)
        if model in DEAD:
            self.released.wait()
        self.send(HTTPStatus.OK, self.text.encode(), {})


@dataclass
class Site:
    """An operator whose queue nobody works on, and the apiserver that it asks."""

    operator: Operator
    server: type[Apiserver]
    reading: asyncio.Task[None] | None = None

    @property
    def world(self) -> World:
        return self.operator.loop._reconciler._parts.world

    async def observe(self, model: str) -> Observed:
        view = ObjectView(name=model, namespace="prod", uid=f"u-{model}", generation=1, resource_version="1",
                          deleting=False, annotations={}, spec=SPEC, status={})
        return await self.world.observe(view, None)

    def read_logs(self) -> None:
        self.reading = asyncio.create_task(self.operator.logs.run())


@contextlib.asynccontextmanager
async def site(text: str = "", ended: frozenset[str] = frozenset()) -> AsyncIterator[Site]:
    class Bound(Apiserver):
        pass

    Bound.ended, Bound.released, Bound.logs, Bound.text = ended, threading.Event(), [], text
    with answering(Bound) as port:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{port}"
        options = Options(config=OperatorConfig(observe_nodes=False), namespaces=("prod",))
        async with (KubeClient(configuration) as kube, TritonClient() as triton, PrometheusClient() as prometheus,
                    ProbeClient() as probes):
            made = Site(Operator(options, kube, triton, prometheus, probes, Metrics()), Bound)
            try:
                yield made
            finally:
                Bound.released.set()
                if made.reading is not None:
                    made.reading.cancel()
                    await asyncio.wait({made.reading})
                made.operator.queue.close()


async def test_a_pass_asks_no_node_for_a_log() -> None:
    async with site() as here:
        seen = await asyncio.gather(*map(here.observe, DEAD))
        assert here.server.logs == []
    assert [[one.name for one in observed.jobs] for observed in seen] == [[f"{model}-build"] for model in DEAD]


async def test_nodes_that_do_not_answer_hold_up_neither_passes_nor_other_logs() -> None:
    async with site(text=dumps(HALF)) as here:
        here.read_logs()
        for model in DEAD:
            await here.observe(model)
        assert (await here.observe("alive")).jobs[0].progress is None
        assert await here.operator.queue.get() == Key("prod", "alive"), "woken by what its log says"
        assert not here.server.released.is_set(), "while no other node has answered"
        assert (await here.observe("alive")).jobs[0].progress == HALF
        assert [(await here.observe(model)).jobs[0].progress for model in DEAD] == [None] * len(DEAD)


async def test_a_job_without_last_words_is_not_judged_before_its_log_is_read() -> None:
    async with site(text=BAD.to_json(), ended=frozenset({"over"})) as here:
        (before,) = (await here.observe("over")).jobs
        assert (before.failed, before.outcome, before.pods[0].phase) == (False, None, "Running")
        here.read_logs()
        assert await here.operator.queue.get() == Key("prod", "over")
        (after,) = (await here.observe("over")).jobs
        assert (after.failed, after.outcome, after.pods[0].phase) == (True, BAD, "Failed")
        assert here.server.logs == ["over"], "what an ended pod has printed never changes"


@dataclass
class Refusing:
    """No log can be read; ``asked`` for which pods it was tried."""

    asked: list[str] = field(default_factory=list)

    async def logs(self, namespace: str, name: str, container: str, **_: Any) -> str:
        self.asked.append(name)
        raise TransientError("no log within 3 s")


async def test_a_log_that_cannot_be_read_is_tried_less_and_less_often() -> None:
    woken: list[Key] = []
    reader = LogReader(cast(KubeClient, kube := Refusing()), woken.append)
    reader.follow(Key("prod", "m"), {"u": PodLog(namespace="prod", pod="p", container="build", ended=False)})
    for number in range(1, 4):
        await reader._step("u")
        assert reader._queue._failures["u"] == number
    assert kube.asked == ["p"] * 3
    assert woken == []
    assert BACKOFF.jittered(3, lambda: 1.0) > BACKOFF.jittered(1, lambda: 1.0) >= 5.0
    reader.follow(Key("prod", "m"), {})
    assert (reader._queue._failures, reader._queue.delayed) == ({}, 0)
    reader._queue.close()


async def test_a_job_whose_log_cannot_be_read_is_judged_without() -> None:
    woken: list[Key] = []
    reader = LogReader(cast(KubeClient, Refusing()), woken.append)
    jobs, key, pods = JobReports(reader), Key("prod", "m"), {"m-build": [pod("m", "Failed")]}
    assert jobs.of(key, pods)["m-build"].awaited == "m-pod"
    await reader._step("uid of m-pod")
    assert woken == [key]
    assert jobs.of(key, pods)["m-build"].awaited == ""
    reader._queue.close()


NOT_READY = {"conditions": [{"type": "Ready", "status": "False"}]}


@pytest.mark.parametrize(("change", "asked"), [
    ({}, 1),
    ({"metadata": {"deletionTimestamp": "2026-11-24T00:00:00Z"}}, 0),
    ({"status": NOT_READY}, 0),
    ({"status": {**NOT_READY, "containerStatuses": [{"name": "build", "ready": False}]}}, 1),
    ({"status": {"reason": "NodeLost"}}, 0),
], ids=["runs", "goes", "node is not ready", "container is not ready", "node is lost"])
def test_pods_out_of_reach_are_not_asked(change: Mapping[str, Mapping[str, Any]], asked: int) -> None:
    class Logs:
        wanted: Mapping[str, PodLog] = {}

        def follow(self, key: Key, wanted: Mapping[str, PodLog]) -> None:
            self.wanted = wanted

        def said(self, uid: str) -> Said:
            return Said()

    raw = pod("m")
    for part, values in change.items():
        raw[part] |= values
    jobs = JobReports(logs := Logs())
    assert jobs.of(Key("prod", "m"), {"m-build": [raw]})["m-build"].awaited == ""
    assert len(logs.wanted) == asked


def test_what_a_pod_prints_is_parsed_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Mock(wraps=contract.load)
    monkeypatch.setattr(reports, "load", load)
    decoy = replace(GOOD, event="no outcome").to_json()
    assert reports.newest(Outcome, "outcome", [decoy] * 10_000) is None
    assert 0 < sum(len(call.args[1]) for call in load.call_args_list) <= reports.PARSED_BYTES
