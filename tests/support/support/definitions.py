"""CustomResourceDefinitions of others, out of their Go modules, which hack/go pins by go.sum."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster import toolchain
from cluster.paths import GO_MODULES
from enginewright.clients.errors import NotFoundError, TransientError
from enginewright.clients.kube import APPLY, KubeClient
from enginewright.clients.resources import Resource
from support.apiserver import CRD, eventually


@dataclass(frozen=True)
class Definitions:
    """Those of ``kinds`` in ``folder`` of ``module``, which the module ``pinned`` below hack/go requires."""

    pinned: str
    module: str
    folder: str
    kinds: tuple[Resource, ...]

    def module_folder(self) -> Path:
        command = (toolchain.find_go(), "mod", "download", "-json", self.module)
        done = subprocess.run(command, cwd=GO_MODULES / self.pinned, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return Path(json.loads(done.stdout)["Dir"])

    def read(self) -> list[dict[str, Any]]:
        folder = self.module_folder() / self.folder
        files = [folder / f"{_group(kind)}_{kind.plural}.yaml" for kind in self.kinds]
        return [yaml.load(file.read_bytes(), yaml.CSafeLoader) for file in files]

    async def install(self, kube: KubeClient) -> None:
        for manifest in await asyncio.to_thread(self.read):
            await _patiently(_apply, kube, manifest)
        await eventually(lambda: self._served(kube))

    async def uninstall(self, kube: KubeClient) -> None:
        """Objects of all namespaces go with it."""
        for kind in self.kinds:
            await _patiently(_delete, kube, f"{kind.plural}.{_group(kind)}")

        async def gone() -> bool:
            return not await self._served(kube)

        await eventually(gone)

    async def _served(self, kube: KubeClient) -> bool:
        """Whether any of the kinds still, or all of them already, answer."""
        answers = [await _answers(kube, kind) for kind in self.kinds]
        assert len(set(answers)) == 1, "some of the kinds are served, some are not"
        return answers[0]


async def _patiently(call: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Again where a busy apiserver is late: a large definition takes it a while."""
    async def done() -> bool:
        try:
            await call(*arguments)
        except TransientError as error:
            raise AssertionError(str(error)) from error
        return True

    await eventually(done)


async def _apply(kube: KubeClient, body: dict[str, Any]) -> None:
    query = {"fieldManager": "test", "force": "true"}
    await kube._json("apply", CRD, CRD.path(None, body["metadata"]["name"]), query=query, body=body,
                     content_type=APPLY)


async def _delete(kube: KubeClient, name: str) -> None:
    with contextlib.suppress(NotFoundError):
        await kube._json("delete", CRD, CRD.path(None, name), body={})


def _group(kind: Resource) -> str:
    return kind.api_version.partition("/")[0]


async def _answers(kube: KubeClient, kind: Resource) -> bool:
    try:
        await kube.list_all(kind, None)
    except NotFoundError:
        return False
    except TransientError as error:
        raise AssertionError(str(error)) from error
    return True
