"""The Gateway API's own CustomResourceDefinitions, out of its Go module, which hack/go/gateway-api pins by go.sum."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from cluster import toolchain
from cluster.paths import GO_MODULES
from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import APPLY, KubeClient
from enginewright.clients.resources import GRPC_ROUTE, HTTP_ROUTE
from support.apiserver import CRD, eventually

MODULE: Final = "sigs.k8s.io/gateway-api"
KINDS: Final = (HTTP_ROUTE, GRPC_ROUTE)


def definitions() -> list[dict[str, Any]]:
    """Of :data:`KINDS`, from the standard channel."""
    command = (toolchain.find_go(), "mod", "download", "-json", MODULE)
    done = subprocess.run(command, cwd=GO_MODULES / "gateway-api", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    folder = Path(json.loads(done.stdout)["Dir"]) / "config" / "crd" / "standard"
    return [yaml.safe_load((folder / f"gateway.networking.k8s.io_{kind.plural}.yaml").read_text()) for kind in KINDS]


async def install(kube: KubeClient) -> None:
    for manifest in await asyncio.to_thread(definitions):
        path = CRD.path(None, manifest["metadata"]["name"])
        query = {"fieldManager": "test", "force": "true"}
        await kube._json("apply", CRD, path, query=query, body=manifest, content_type=APPLY)
    await eventually(lambda: served(kube))


async def uninstall(kube: KubeClient) -> None:
    """Routes of all namespaces go with it."""
    for kind in KINDS:
        await kube._json("delete", CRD, CRD.path(None, f"{kind.plural}.gateway.networking.k8s.io"), body={})

    async def gone() -> bool:
        return not await served(kube)

    await eventually(gone)


async def served(kube: KubeClient) -> bool:
    """Whether any of the kinds still, or all of them already, answer."""
    answers = [await _answers(kube, index) for index in range(len(KINDS))]
    assert len(set(answers)) == 1, "some of the kinds are served, some are not"
    return answers[0]


async def _answers(kube: KubeClient, index: int) -> bool:
    try:
        await kube.list_all(KINDS[index], None)
    except NotFoundError:
        return False
    return True
