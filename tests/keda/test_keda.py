"""KEDA's own operator and metrics server scale a model as examples/scaling/keda.yaml says: on a real apiserver, by the
HorizontalPodAutoscaler of a real kube-controller-manager, with a real Prometheus. Containers are acted, and what
Prometheus scrapes is the series that the chart's rules would record.

    make test-keda      # builds KEDA first, which takes a quarter of an hour
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from cluster import pki
from cluster.paths import ClusterPaths
from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import Resource
from support import aggregated, keda, prometheus
from support.apiserver import Models, eventually, grant, model
from support.fake_external_metrics import GROUP, VERSION
from support.fake_kubelet import FakeKubelet
from support.operators import embedded
from support.stand_in import free_port

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
SERIES = "enginewright:queue_depth:sum"
HPA = Resource("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
SECONDS = 120.0


class Queue:
    """A page with the depth of the model's queue."""

    def __init__(self, namespace: str) -> None:
        self.namespace, self.depth, self.address = namespace, 0.0, ""

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        async def page(_: web.Request) -> web.Response:
            labels = f'namespace="{self.namespace}",optimisedmodel="minilm"'
            return web.Response(text=f"# TYPE {SERIES} gauge\n{SERIES}{{{labels}}} {self.depth}\n")

        app = web.Application()
        app.router.add_get("/metrics", page)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.address = f"127.0.0.1:{runner.addresses[0][1]}"
            yield
        finally:
            await runner.cleanup()


def certificates(control_plane: Path, folder: Path) -> Path:
    """As KEDA reads them: both programs show the same one to each other."""
    paths = ClusterPaths(control_plane.parent, control_plane.parent / "run", control_plane.parent / "logs")
    pki.create(paths.pki, [pki.Certificate("keda", "keda", alternatives=("DNS:localhost", "IP:127.0.0.1"))])
    folder.mkdir()
    for name, source in {"ca.crt": "ca.crt", "tls.crt": "keda.crt", "tls.key": "keda.key"}.items():
        (folder / name).write_bytes((paths.pki / source).read_bytes())
    return folder


@contextlib.asynccontextmanager
async def program(name: str, log: Path, environment: dict[str, str], *words: str) -> AsyncIterator[None]:
    with log.open("wb") as file:
        child = await asyncio.create_subprocess_exec(
            Path(os.environ["KEDA_BINARIES"]) / name, *words, stdout=file, stderr=subprocess.STDOUT,
            env={**os.environ, **environment})
    try:
        yield
    finally:
        assert child.returncode is None, f"KEDA's {name} ended, as {log} says"
        child.terminate()
        async with asyncio.timeout(60):
            await child.wait()


@contextlib.asynccontextmanager
async def running(kube: KubeClient, control_plane: Path, namespace: str, folder: Path) -> AsyncIterator[None]:
    """KEDA, as its chart starts it, but for addresses and certificates. The apiserver of these tests does not show its
    own certificate to an API behind it, so to KEDA the autoscaler is anonymous."""
    certs, (service, page, secure) = certificates(control_plane, folder / "certs"), (free_port() for _ in range(3))
    environment = {"KUBECONFIG": str(control_plane), "WATCH_NAMESPACE": namespace, "POD_NAMESPACE": namespace,
                   "KEDA_CLUSTER_OBJECT_NAMESPACE": namespace}
    await grant(control_plane, [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["list"]}], "system:anonymous")
    await keda.ALL.install(kube)
    try:
        async with (
            program("operator", folder / "keda-operator.log", environment, f"--cert-dir={certs}",
                    f"--metrics-service-bind-address=127.0.0.1:{service}", "--metrics-bind-address=0",
                    "--health-probe-bind-address=0"),
            program("adapter", folder / "keda-adapter.log", environment, f"--secure-port={secure}", f"--port={page}",
                    "--bind-address=127.0.0.1", f"--cert-dir={certs}", f"--client-ca-file={certs / 'ca.crt'}",
                    f"--tls-cert-file={certs / 'tls.crt'}", f"--tls-private-key-file={certs / 'tls.key'}",
                    f"--metrics-service-address=localhost:{service}", "--authorization-always-allow-paths=/*",
                    *(f"--{use}-kubeconfig={control_plane}" for use in ("authentication", "authorization", "lister"))),
            aggregated.registered(kube, namespace, GROUP, VERSION, secure),
        ):
            yield
    finally:
        await keda.ALL.uninstall(kube)


def scaled_object(prometheus_url: str, namespace: str) -> dict[str, Any]:
    """The example, where this Prometheus and this namespace are, and without five minutes before a replica goes."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "scaling" / "keda.yaml").read_text())
    asked = found["spec"]["triggers"][0]["metadata"]
    asked["serverAddress"] = prometheus_url
    asked["query"] = asked["query"].replace('namespace="default"', f'namespace="{namespace}"')
    found["spec"]["advanced"] = {"horizontalPodAutoscalerConfig": {
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}}
    return found


async def test_keda_scales_a_model_up_and_down(
    operator_kubeconfig: Path, kube: KubeClient, control_plane: Path, models: Models, kubelet: FakeKubelet,
    tmp_path: Path,
) -> None:
    queue = Queue(models.namespace)
    (tmp_path / "prometheus").mkdir()

    async def runs(replicas: int) -> None:
        async def so_many() -> bool:
            found = await models.get()
            seen = (found["spec"].get("replicas"), found["status"].get("replicas"))
            assert seen == (replicas, replicas), seen
            return True

        await eventually(so_many, SECONDS)

    async with (queue.served(), embedded(operator_kubeconfig, models.namespace),
                prometheus.running(tmp_path / "prometheus", [{"targets": [queue.address]}]) as url,
                running(kube, control_plane, models.namespace, tmp_path)):
        await models.create(model(replicas=1))
        await models.wait("Ready", "True")
        made = scaled_object(url, models.namespace)
        await kube._json("create", keda.SCALED_OBJECT, keda.SCALED_OBJECT.path(models.namespace), body=made)

        async def taken_up() -> bool:
            found = await kube.get(keda.SCALED_OBJECT, models.namespace, "minilm")
            conditions = {one["type"]: one["status"] for one in found.get("status", {}).get("conditions", [])}
            assert conditions.get("Ready") == "True", found.get("status")
            await kube.get(HPA, models.namespace, "keda-hpa-minilm")
            return True

        await eventually(taken_up, SECONDS)
        await runs(1)
        queue.depth = 11  # of which each replica may have four
        await runs(3)
        queue.depth = 100
        await runs(8)
        queue.depth = 0
        await runs(1)
        # While its operator is there, which the object's finalizer waits for.
        await kube._json("delete", keda.SCALED_OBJECT, keda.SCALED_OBJECT.path(models.namespace, "minilm"))

        async def gone() -> bool:
            try:
                await kube.get(keda.SCALED_OBJECT, models.namespace, "minilm")
            except NotFoundError:
                return True
            return False

        await eventually(gone, SECONDS)
