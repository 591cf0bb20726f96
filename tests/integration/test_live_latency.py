"""The alarm about live latency, fired by a real Prometheus that scrapes a real operator and what replicas export."""

from __future__ import annotations

from pathlib import Path

import httpx
from prometheus_client import CollectorRegistry, Gauge

from enginewright.reconcile.http import metrics_app, serving
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded
from support.prometheus import at_once, running, series

ALARM = "EnginewrightLatencyMissed"


async def test_the_alarm_holds_replicas_against_the_objective_that_the_operator_exports(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path
) -> None:
    replicas = CollectorRegistry()
    latency = Gauge("nv_inference_request_summary_us", "As Triton exports it, with the labels of the PodMonitor.",
                    ("namespace", "optimisedmodel", "pod", "quantile"), registry=replicas)
    for name in ("minilm", "strict", "free"):
        latency.labels(namespace, name, "a", "0.99").set(15_000)
        latency.labels(namespace, name, "b", "0.99").set(31_000)
    async with (
        embedded(operator_kubeconfig, namespace) as operator,
        serving(metrics_app(operator.metrics.registry), 0) as ours,
        serving(metrics_app(replicas), 0) as theirs,
        running(tmp_path, [{"targets": [f"127.0.0.1:{port}" for port in (ours, theirs)]}], [at_once(tmp_path)]) as url,
        httpx.AsyncClient() as http,
    ):
        await models.create(model(objective={"latency": {"milliseconds": 40}}))
        await models.create(model("strict", objective={"latency": {"milliseconds": 20}}))
        await models.create(model("free"))

        async def only_the_strict_one_misses_it() -> bool:
            objectives = await series(http, url, "enginewright_objective_latency_seconds")
            assert {one["optimisedmodel"] for one in objectives} == {"minilm", "strict"}
            fired = await series(http, url, f'ALERTS{{alertname="{ALARM}",alertstate="firing"}}')
            assert [(one["namespace"], one["optimisedmodel"], one["quantile"]) for one in fired] == [
                (namespace, "strict", "0.99")]
            return True

        await eventually(only_the_strict_one_misses_it)
