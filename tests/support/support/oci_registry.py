"""A real registry (CNCF distribution) on loopback, over a folder of the test's own, and a client that pushes to it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from cluster import binaries
from support.artifacts import Artifact
from support.child_server import answering_at
from support.stand_in import free_port

USER, PASSWORD = "reader", "not-a-secret-anywhere-else"
# Of that password, with the least rounds that there are: it is hashed again for each request.
HTPASSWD = f"{USER}:$2b$04$BsCs5j9.rmTO1LogcfR.EOBntiScVkye04hKSVGLFyCZxbuhDxpmW\n"


@dataclass(frozen=True)
class OciRegistry:
    address: str
    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a Secret holds for it."""
        return {"REGISTRY_USERNAME": USER, "REGISTRY_PASSWORD": PASSWORD, "REGISTRY_PLAIN_HTTP": self.address}

    def push(self, repository: str, reference: str, artifact: Artifact) -> None:
        with httpx.Client(base_url=f"http://{self.address}/v2/{repository}/", auth=(USER, PASSWORD)) as client:
            self._push(client, reference, artifact)

    def _push(self, client: httpx.Client, reference: str, artifact: Artifact) -> None:
        for child in artifact.children:
            self._push(client, child.digest, child)
        for digest, data in artifact.blobs.items():
            begun = client.post("blobs/uploads/").raise_for_status()
            place = httpx.URL(begun.headers["location"]).copy_merge_params({"digest": digest})
            client.put(place, content=data).raise_for_status()
        client.put(f"manifests/{reference}", content=artifact.manifest,
                   headers={"Content-Type": artifact.media_type}).raise_for_status()

    def lose(self, digest: str) -> Path:
        """The file of a blob, to be damaged."""
        algorithm, _, name = digest.partition(":")
        return self.root / "docker/registry/v2/blobs" / algorithm / name[:2] / name / "data"


@contextlib.contextmanager
def running(folder: Path, host: str = "127.0.0.1") -> Iterator[OciRegistry]:
    address = (host, free_port())
    (folder / "htpasswd").write_text(HTPASSWD)
    (folder / "config.yml").write_text(json.dumps({
        "version": "0.1", "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "root")}},
        "http": {"addr": f"{address[0]}:{address[1]}", "secret": "of uploads that go on"},
        "auth": {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}}))
    command = (binaries.build(binaries.REGISTRY), "serve", folder / "config.yml")
    with answering_at(address, command, folder / "log", {"OTEL_TRACES_EXPORTER": "none"}):
        yield OciRegistry(f"{address[0]}:{address[1]}", folder / "root")
