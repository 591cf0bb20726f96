"""A real object store that speaks S3, on loopback, over a folder of the test's own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.store import S3Store

from cluster import binaries
from support.child_server import answering_at
from support.stand_in import free_port

KEY, SECRET = "reader", "not-a-secret-anywhere-else"


@dataclass(frozen=True)
class ObjectStore:
    """``root`` holds a folder for each bucket."""

    address: str
    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a Secret holds for it."""
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://{self.address}"}

    def put(self, bucket: str, objects: Mapping[str, bytes]) -> None:
        (self.root / bucket).mkdir(exist_ok=True)
        store = S3Store(bucket, endpoint=f"http://{self.address}", access_key_id=KEY, secret_access_key=SECRET,
                        region="us-east-1", client_options={"allow_http": True},
                        retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=10)})
        for key, data in objects.items():
            obstore.put(store, key, data)


@contextlib.contextmanager
def running(folder: Path, host: str = "127.0.0.1") -> Iterator[ObjectStore]:
    address = (host, free_port())
    for name in ("root", "metadata"):
        (folder / name).mkdir()
    command = (binaries.build(binaries.VERSITYGW), "--port", f"{address[0]}:{address[1]}", "--quiet",
               "posix", "--sidecar", folder / "metadata", folder / "root")
    with answering_at(address, command, folder / "log", {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}):
        yield ObjectStore(f"{address[0]}:{address[1]}", folder / "root")
