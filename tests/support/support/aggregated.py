"""An API behind the real apiserver's aggregation, served by the test."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import SERVICE, Resource
from support.fake_kubelet import make_certificate

API_SERVICE = Resource("apiregistration.k8s.io/v1", "APIService", "apiservices")


@contextlib.asynccontextmanager
async def serving(kube: KubeClient, namespace: str, folder: Path, group: str, version: str, app: web.Application
                  ) -> AsyncIterator[None]:
    """``app`` answers for ``/apis/GROUP/VERSION`` as long as the block runs. The API is the whole cluster's: one at a
    time. Its Service is in ``namespace``."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*make_certificate(folder))
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        async with registered(kube, namespace, group, version, int(runner.addresses[0][1])):
            yield
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def registered(kube: KubeClient, namespace: str, group: str, version: str, port: int) -> AsyncIterator[None]:
    """As :func:`serving`, for what answers at ``port`` of the loopback already."""
    try:
        await _register(kube, namespace, group, version, port)
        yield
    finally:
        with contextlib.suppress(NotFoundError):  # it was not registered
            await kube._json("delete", API_SERVICE, API_SERVICE.path(None, f"{version}.{group}"))


async def _register(kube: KubeClient, namespace: str, group: str, version: str, port: int) -> None:
    # By name: addresses of Endpoints may not be loopback's.
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics"},
               "spec": {"type": "ExternalName", "externalName": "localhost"}}
    await kube._json("create", SERVICE, SERVICE.path(namespace), body=service)
    spec = {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": True, "service": {"namespace": namespace, "name": "metrics", "port": port}}
    body = {"apiVersion": API_SERVICE.api_version, "kind": "APIService", "metadata": {"name": f"{version}.{group}"},
            "spec": spec}
    await kube._json("create", API_SERVICE, API_SERVICE.path(None), body=body)
