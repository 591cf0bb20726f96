"""Alarms of the chart, each fired by a real Prometheus that scrapes a real operator whose models are in that state.

They wait for nothing here. How long each waits in a cluster is tested by promtool with a clock of its own
(chart/rules.test.yaml, rules.of-days.test.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from enginewright.clients.errors import TransientError
from enginewright.core.config import OperatorConfig, Prices
from enginewright.core.labels import QUALITY_PORT
from enginewright.core.plan import Plan
from enginewright.reconcile.http import metrics_app, serving
from enginewright_builder.contract import QualityReport
from support.apiserver import Models, eventually, model
from support.fake_kubelet import ENGINE, FakeKubelet, Script
from support.operators import Depths, Scores, embedded
from support.prometheus import at_once, fired, fires_only, running, series
from support.stand_in import free_port

QUICK: Final = {"strategy": "BlueGreen", "analysis": {"seconds": 0}, "scaleDownDelaySeconds": 0}
SCALING: Final = {"minReplicas": 1, "maxReplicas": 2, "targetQueueDepth": 4}
# By the alarm: the spec of a model, and what its pods do.
STATES: Final[Mapping[str, tuple[dict[str, Any], Script]]] = {
    "BuildFails": ({}, Script(build="user-error")),
    "BuildWaits": ({}, Script(build="unschedulable")),
    "StoreUnreachable": ({}, Script(server="no-store")),
    "ObjectiveMissed": ({"objective": {"latency": {"milliseconds": 2}}}, Script(missed=frozenset({""}))),
    "ModelUnavailable": ({"rollout": QUICK}, Script()),
    "RolledBack": ({"rollout": {"strategy": "Recreate"}}, Script()),
    "PromotionWaits": ({"rollout": QUICK}, Script()),
    "QualityDrifted": ({"quality": {}}, Script()),
    "QualityUnknown": ({"quality": {}}, Script()),
    "ScaleLimit": ({"autoscaling": SCALING}, Script()),
}


@dataclass
class Monitors(Scores):
    """Of replicas whose address is in ``silent`` there is no answer."""

    silent: frozenset[str] = frozenset()

    async def report(self, address: str, port: int = QUALITY_PORT) -> QualityReport:
        if address in self.silent:
            raise TransientError("no answer")
        return await super().report(address, port)


def named(alarm: str) -> str:
    return alarm.lower()


async def test_the_state_of_a_model_fires_its_alarm_and_no_other(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path
) -> None:
    # Models of one digest would wait for the same build.
    kubelet.script.models = {named(alarm): replace(script, digest=f"sha256:{place:064x}")
                             for place, (alarm, (_, script)) in enumerate(STATES.items(), 1)}
    depths, monitors = Depths(), Monitors(samples=1000)
    async with (
        embedded(operator_kubeconfig, namespace, triton=depths, quality=monitors, resync=1.0) as operator,
        serving(metrics_app(operator.metrics.registry), 0) as port,
        running(tmp_path, [{"targets": [f"127.0.0.1:{port}"]}], [at_once(tmp_path)]) as url,
        httpx.AsyncClient() as http,
    ):
        for alarm, (spec, _) in STATES.items():
            await models.create(model(named(alarm), **spec))
        for alarm in ("ModelUnavailable", "RolledBack", "PromotionWaits"):
            await models.served(named(alarm))
        await models.wait("QualityHeld", "True", name="qualitydrifted")
        await models.wait("QualityHeld", "True", name="qualityunknown")

        async def nothing_is_wrong_with_those() -> bool:
            said = {name for _, name in await fired(http, url)}
            assert "modelunavailable" in {one["optimisedmodel"] for one in await series(
                http, url, 'enginewright:condition:max{type="Available",status="True"}')}
            return not said & {named(alarm) for alarm in list(STATES)[4:]}

        await eventually(nothing_is_wrong_with_those)
        _break(kubelet, depths, monitors)
        await models.patch({"spec": {"engine": {"maxBatchSize": 4}}}, "rolledback")
        await models.patch({"spec": {"engine": {"maxBatchSize": 4}, "rollout": {"autoPromote": False}}},
                           "promotionwaits")
        await models.wait("RolloutComplete", "False", "RolledBack", "rolledback")
        kubelet.script.models["rolledback"].server = "succeed"

        # An object that waits for the operator for a moment is late, too, where alarms wait for nothing.
        await fires_only(http, url, *((alarm, named(alarm)) for alarm in STATES))


def _break(kubelet: FakeKubelet, depths: Depths, monitors: Monitors) -> None:
    """What goes wrong with models that served well."""
    scripts = kubelet.script.models
    scripts["modelunavailable"].server = "crash"
    scripts["rolledback"].server = "crash"

    def addresses(name: str) -> list[str]:
        return [address for pod, address in kubelet.addresses.items() if pod.startswith(f"{name}-")]

    depths.queued = dict.fromkeys(addresses("scalelimit"), 100.0)
    monitors.silent = frozenset(addresses("qualityunknown"))
    monitors.mean = 0.5


def _bug(*_: object) -> Plan:
    raise RuntimeError("a defect")


async def test_trouble_of_the_operator_fires_its_alarm_and_no_other(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("enginewright.core.money.SEEN", 1.0)  # seconds of traffic, of which there is none
    port, price, idle = free_port(), 0.5, ("ReplicasIdle", "minilm")
    kubelet.script.engine = replace(ENGINE, device_class="cpu", throughput_at_objective=100.0)

    def config() -> OperatorConfig:
        return OperatorConfig(prices=Prices(currency="EUR", per_hour={"cpu": price}))

    depths = Depths()
    async with (
        running(tmp_path, [{"targets": [f"127.0.0.1:{port}"]}], [at_once(tmp_path)]) as url,
        httpx.AsyncClient() as http,
    ):

        async def fires(*alarms: tuple[str, str]) -> None:
            async def they_do() -> bool:
                # The one looks back at five minutes, so that it may still fire when it has no cause any more; the other
                # fires as soon as status says that nothing is served.
                beside = ({idle} if depths.silent else {("ScalesBlind", ""), idle}) - set(alarms)
                assert await fired(http, url) - beside == set(alarms)
                return True

            await eventually(they_do)

        async with (embedded(operator_kubeconfig, namespace, triton=depths, config=config()) as operator,
                    serving(metrics_app(operator.metrics.registry), port)):
            await models.create(model(autoscaling=SCALING, objective={"latency": {"milliseconds": 20}}))
            await models.wait("Ready", "True")

            async def the_cost_is_known() -> bool:
                return bool(await series(http, url, "enginewright_cost_per_million_inferences"))

            await eventually(the_cost_is_known)
            await fires()
            depths.silent = True
            await fires(("ScalesBlind", ""))
            operator.signals._readings = 0.5  # one replica is more than it can read each second
            await fires(("ScalesBlind", ""), ("ScalesSlowly", ""))
        depths.silent, price = False, 1.0
        await fires(("OperatorDown", ""))
        async with (embedded(operator_kubeconfig, namespace, triton=depths, config=config()) as operator,
                    serving(metrics_app(operator.metrics.registry), port)):
            await models.wait("Ready", "True")
            await fires(idle, ("CostRose", "minilm"))
            reconciler = operator.loop._reconciler
            reconciler._parts = replace(reconciler._parts, decide=_bug)
            await models.patch({"spec": {"engine": {"maxBatchSize": 4}}})
            await fires(("CostRose", "minilm"), ("OperatorBug", ""))
