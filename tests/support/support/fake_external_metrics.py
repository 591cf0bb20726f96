"""A fake of the external metrics API, which prometheus-adapter and KEDA serve in a cluster: one metric, as a test says.

What asks it is real: the HorizontalPodAutoscaler of kube-controller-manager, through the apiserver's aggregation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from aiohttp import web

from enginewright.clients.kube import KubeClient
from support import aggregated

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"


def serving(kube: KubeClient, namespace: str, folder: Path, metric: str, selector: str, value: Callable[[], float]
            ) -> AbstractAsyncContextManager[None]:
    """Answers with ``metric`` of ``namespace`` where a request has the label ``selector``, and with no value else."""
    app = web.Application()
    root = f"/apis/{GROUP}/{VERSION}"
    listed = {"name": metric, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList",
              "verbs": ["get"]}

    async def resources(_: web.Request) -> web.Response:
        return web.json_response({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}",
                                  "resources": [listed]})

    async def values(request: web.Request) -> web.Response:
        items = [{"metricName": metric, "metricLabels": {}, "timestamp": "2026-01-01T00:00:00Z",
                  "value": f"{round(value() * 1000)}m"}] if request.query.get("labelSelector") == selector else []
        return web.json_response({"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}",
                                  "metadata": {}, "items": items})

    app.router.add_get(root, resources)
    app.router.add_get(f"{root}/namespaces/{namespace}/{metric}", values)
    return aggregated.serving(kube, namespace, folder, GROUP, VERSION, app)
