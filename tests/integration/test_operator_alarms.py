"""Alarms about what is around the operator, fired by a real Prometheus: an apiserver that answers slowly, a CRD that is
older than the operator."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from aiohttp import web

from enginewright.clients.credentials import load_configuration
from enginewright.clients.kube import KubeClient
from enginewright.core.spec.crd import crd
from enginewright.reconcile.http import metrics_app, serving
from enginewright.runtime import Operator
from support.apiserver import CRD, Models, eventually, model
from support.faulty import Fault, FaultyProxy, is_write
from support.kubectl import Kubectl
from support.operators import embedded
from support.prometheus import ROOT, RUNBOOKS, at_once, fired, fires_only, runbook_finds, running

# For ever, as far as this test goes: no worker gives up before the test lets it go on.
LONG = 3600.0
BEHIND, OLD = ("OperatorIsBehind", ""), ("CRDIsOld", "")


@contextlib.asynccontextmanager
async def watched(operator: Operator, tmp_path: Path) -> AsyncIterator[tuple[str, httpx.AsyncClient]]:
    """A real Prometheus scrapes the operator and evaluates the chart's rules: its URL, and a client to ask it."""
    async with (
        serving(metrics_app(operator.metrics.registry), 0) as port,
        running(tmp_path, [{"targets": [f"127.0.0.1:{port}"]}], [at_once(tmp_path)]) as url,
        httpx.AsyncClient() as http,
    ):
        yield url, http


async def test_an_apiserver_that_does_not_answer_fires_its_alarm_until_it_does(
    operator_kubeconfig: Path, namespace: str, models: Models, tmp_path: Path
) -> None:
    """One object more than there are workers."""
    slow = False

    def choose(request: web.Request) -> Fault:
        return "hold" if slow and is_write(request) else "pass"

    proxy = FaultyProxy(choose=choose)
    async with (
        proxy.running(operator_kubeconfig, tmp_path) as through,
        embedded(through, namespace) as operator,
        watched(operator, tmp_path) as (url, http),
    ):
        names = [f"refused-{number}" for number in range(operator.loop._workers + 1)]

        async def all_are_told() -> bool:
            return all([(await models.condition("Ready", name)) for name in names])

        async def it_has_caught_up() -> bool:
            assert BEHIND not in await fired(http, url)
            return True

        for name in names:
            # The operator refuses them, so that nothing else happens to them.
            await models.create(model(name, accuracy={"maxLoss": 0.9}))
        await eventually(all_are_told)
        await eventually(it_has_caught_up)
        operator.kube._deadline = LONG
        slow = True
        for name in names:
            await models.patch({"spec": {"accuracy": {"maxLoss": 0.8}}}, name)

        async def it_fires() -> bool:
            return BEHIND in await fired(http, url)

        await eventually(it_fires)
        await runbook_finds(http, url, "OperatorIsBehind")
        slow = False
        proxy.released.set()
        await eventually(all_are_told)
        await eventually(it_has_caught_up)


async def test_an_apiserver_that_answers_with_errors_fires_the_same_alarm_until_it_does_not(
    operator_kubeconfig: Path, namespace: str, models: Models, tmp_path: Path
) -> None:
    """There are more workers than objects: what waits is one that is tried again and again."""
    broken = False

    def choose(request: web.Request) -> Fault:
        return "break" if broken and is_write(request) else "pass"

    proxy = FaultyProxy(choose=choose)
    async with (
        proxy.running(operator_kubeconfig, tmp_path) as through,
        embedded(through, namespace) as operator,
        watched(operator, tmp_path) as (url, http),
    ):

        async def is_behind(expected: bool) -> bool:
            assert (BEHIND in await fired(http, url)) is expected
            return True

        await models.create(model("refused", accuracy={"maxLoss": 0.9}))
        await eventually(lambda: models.condition("Ready", "refused"))
        await eventually(lambda: is_behind(False))
        broken = True
        await models.patch({"spec": {"accuracy": {"maxLoss": 0.8}}}, "refused")
        await eventually(lambda: is_behind(True))
        assert operator.loop.backoff or len(operator.queue)
        broken = False
        await eventually(lambda: is_behind(False))


async def test_an_old_crd_fires_its_alarm_until_it_is_upgraded_as_the_runbook_says(
    without_crd: Path, tmp_path: Path
) -> None:
    newer = model(serving={"queue": {"maxQueueSize": 8}})
    old = copy.deepcopy(crd())
    spec = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["serving"]["properties"]["queue"]
    # Nor did it have the rules that name this field.
    rules = "x-kubernetes-validations"
    spec[rules] = [rule for rule in spec[rules] if "serving.queue" not in json.dumps(rule)]
    kubectl = Kubectl(without_crd)
    async with KubeClient(await load_configuration(str(without_crd))) as kube:
        await kube._json("create", CRD, CRD.path(None), body=old)
    async with (
        embedded(without_crd, "default") as operator,
        watched(operator, tmp_path) as (url, http),
    ):

        async def missing(*fields: str) -> bool:
            await operator.schema.look()  # now, and not at its next turn
            assert operator.schema.missing == fields, operator.schema.missing
            return True

        await eventually(lambda: missing("spec.serving.queue"))
        await fires_only(http, url, OLD)
        assert "unknown field" in kubectl.admits(newer)

        page = (RUNBOOKS / "EnginewrightCRDIsOld.md").read_text()
        for command in re.findall(r"^kubectl (.*)$", page, re.MULTILINE):
            words = [str(ROOT / word) if word.startswith("crds/") else word for word in shlex.split(command)]
            assert "enginewright" in kubectl(*words), command
        await eventually(lambda: missing())
        await fires_only(http, url)

        async def kept() -> bool:
            assert (said := kubectl.admits(newer)) == "", said
            return True

        await eventually(kept)
