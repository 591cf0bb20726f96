"""A server of the custom metrics API behind the apiserver's aggregation: queued requests a pod, as a test says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from aiohttp import web

from enginewright.clients.kube import KubeClient
from support import aggregated

GROUP, VERSION, METRIC = "custom.metrics.k8s.io", "v1beta2", "queue"
# Queued requests by pod, whenever somebody asks.
Ask = Callable[[], Awaitable[Mapping[str, float]]]


def serving(kube: KubeClient, namespace: str, folder: Path, ask: Ask) -> AbstractAsyncContextManager[None]:
    """Registered for as long as the block runs."""
    return aggregated.serving(kube, namespace, folder, GROUP, VERSION, _app(namespace, ask))


def _app(namespace: str, ask: Ask) -> web.Application:
    app = web.Application()
    root = f"/apis/{GROUP}/{VERSION}"

    async def resources(_: web.Request) -> web.Response:
        offered = {"name": f"pods/{METRIC}", "singularName": "", "namespaced": True, "kind": "MetricValueList",
                   "verbs": ["get"]}
        return web.json_response({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}",
                                  "resources": [offered]})

    async def values(_: web.Request) -> web.Response:
        items = [{"describedObject": {"kind": "Pod", "namespace": namespace, "name": pod, "apiVersion": "/v1"},
                  "metric": {"name": METRIC}, "timestamp": "2026-01-01T00:00:00Z", "value": f"{round(value * 1000)}m"}
                 for pod, value in (await ask()).items()]
        return web.json_response({"kind": "MetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {},
                                  "items": items})

    app.router.add_get(root, resources)
    app.router.add_get(f"{root}/namespaces/{namespace}/pods/*/{METRIC}", values)
    return app
