"""A server of the custom metrics API behind the apiserver's aggregation: queued requests a pod, as a test says."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

from aiohttp import web

from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import SERVICE, Resource
from support.fake_kubelet import make_certificate

GROUP, VERSION, METRIC = "custom.metrics.k8s.io", "v1beta2", "queue"
API_SERVICE = Resource("apiregistration.k8s.io/v1", "APIService", "apiservices")
# Queued requests by pod, whenever somebody asks.
Ask = Callable[[], Awaitable[Mapping[str, float]]]


@contextlib.asynccontextmanager
async def serving(kube: KubeClient, namespace: str, folder: Path, ask: Ask) -> AsyncIterator[None]:
    """Registered for as long as the block runs. The API is the whole cluster's: one at a time."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*make_certificate(folder))
    runner = web.AppRunner(_app(namespace, ask))
    await runner.setup()
    name = f"{VERSION}.{GROUP}"
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        await _register(kube, namespace, name, int(runner.addresses[0][1]))
        yield
    finally:
        with contextlib.suppress(NotFoundError):  # it was not registered
            await kube._json("delete", API_SERVICE, API_SERVICE.path(None, name))
        await runner.cleanup()


async def _register(kube: KubeClient, namespace: str, name: str, port: int) -> None:
    # By name: addresses of Endpoints may not be loopback's.
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics"},
               "spec": {"type": "ExternalName", "externalName": "localhost"}}
    await kube._json("create", SERVICE, SERVICE.path(namespace), body=service)
    spec = {"group": GROUP, "version": VERSION, "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": True, "service": {"namespace": namespace, "name": "metrics", "port": port}}
    body = {"apiVersion": API_SERVICE.api_version, "kind": "APIService", "metadata": {"name": name}, "spec": spec}
    await kube._json("create", API_SERVICE, API_SERVICE.path(None), body=body)


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
