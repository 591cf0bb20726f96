"""The alarm about energy, fired by a real Prometheus that scrapes a real operator and what replicas export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from aiohttp import web

from enginewright.clients.signals import ReplicaMetrics
from enginewright.clients.triton import TritonClient, parse_metrics
from enginewright.core.labels import METRICS_PORT
from enginewright.reconcile.http import metrics_app, serving
from enginewright_builder.triton.ports import HOST
from support.apiserver import Models, eventually, model
from support.fake_kubelet import ENGINE, FakeKubelet, Script
from support.operators import embedded
from support.prometheus import at_once, fires_only, running, series

# Inferences a joule, as the build measured them.
MEASURED = 2.0
# By the model: inferences a joule now, and the share of the time that its GPU is busy.
REPLICAS = {"wasteful": (0.9, 0.9), "thrifty": (1.1, 0.9), "idle": (0.9, 0.4), "exported": (0.9, 0.9)}
READ = ("wasteful", "thrifty", "idle")


@dataclass
class Gpus(TritonClient):
    """Stands where the network to the pods would be, and plays tritonserver on a GPU: its page, by the address that a
    pod was given. Both counters grow with each reading."""

    addresses: Mapping[str, str]
    port: int = 0
    readings: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    async def scrape(self, address: str, port: int = METRICS_PORT) -> ReplicaMetrics:
        (pod,) = (name for name, given in self.addresses.items() if given == address)
        return parse_metrics(await self._page(f"http://{HOST}:{self.port}/{pod.partition('-')[0]}"))

    async def page(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        rate, busy = REPLICAS[name]
        self.readings += 1
        return web.Response(text=f"""\
nv_inference_pending_request_count{{model="{name}",version="1"}} 0
nv_inference_count{{model="{name}",version="1"}} {rate * 100 * self.readings}
nv_energy_consumption{{gpu_uuid="GPU-{name}"}} {100 * self.readings}
nv_gpu_utilization{{gpu_uuid="GPU-{name}"}} {busy}
""")

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{name}", self.page)
        return app


async def test_a_busy_gpu_that_takes_twice_the_energy_of_the_build_fires_it(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path
) -> None:
    """By what the operator reads of replicas, and by what Prometheus reads of them itself."""
    engine = replace(ENGINE, throughput=MEASURED * 100, power_watts=100.0)
    kubelet.script.models = {name: Script(digest=f"sha256:{place:064x}", engine=engine)
                             for place, name in enumerate(REPLICAS, 1)}
    gpus = Gpus(kubelet.addresses)
    # With the labels that the chart's PodMonitor gives.
    exported = {"__metrics_path__": "/exported", "namespace": namespace, "pod": "a", "optimisedmodel": "exported"}
    async with (
        embedded(operator_kubeconfig, namespace, triton=gpus) as operator,
        serving(metrics_app(operator.metrics.registry), 0) as ours,
        serving(gpus.app(), 0) as gpus.port,
        running(tmp_path, [{"targets": [f"{HOST}:{ours}"]}, {"targets": [f"{HOST}:{gpus.port}"], "labels": exported}],
                [at_once(tmp_path)]) as url,
        httpx.AsyncClient(timeout=60) as http,
    ):
        for name in REPLICAS:
            await models.create(model(name, placement={"accelerator": "gpu"}, **(
                {"autoscaling": {"minReplicas": 1, "maxReplicas": 2, "targetQueueDepth": 4}} if name in READ else {})))
        for name in REPLICAS:
            await models.served(name)

        async def all_is_known() -> bool:
            for metric, names in (("enginewright_engine_inferences_per_joule", REPLICAS),
                                  ("enginewright_inferences_per_joule", READ),
                                  ("enginewright:inferences_per_joule:rate5m", ("exported",))):
                found = {one["optimisedmodel"] for one in await series(http, url, metric)}
                assert found == set(names), (metric, found)
            return True

        await eventually(all_is_known)
        await fires_only(http, url, ("EnergyRose", "wasteful"), ("EnergyRose", "exported"))
