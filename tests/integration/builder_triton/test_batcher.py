"""The batcher as its pod runs it: the server is started by the manifest's own command with the key that the pod's first
container made, and the command ``enginewright adapt`` follows it through a shift of the traffic."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import httpx
import numpy as np
import pytest
import pytest_asyncio
from tritonclient.grpc import service_pb2

from batching_study.model import write_stand_in
from enginewright.clients.errors import RefusedError
from enginewright.clients.model_control import ModelControl
from enginewright.core.batching import SafeSet, Setting
from enginewright.core.batching.wire import safe_set_to_text
from enginewright.core.labels import KEY_FILE, KEY_HEADER
from enginewright.core.manifests.batcher import guarded
from enginewright_builder.load import Channels, Request, closed_loop, encode
from enginewright_builder.triton import install
from enginewright_builder.triton.ports import HOST, free_ports
from enginewright_builder.triton.server import TritonServer
from enginewright_builder.verify import leave_key
from support.apiserver import eventually

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]
MODEL, MAX_BATCH, CROWD = "model", 16, 4
# So long that a busy machine hardly adds to it.
CURVE = {1: 0.2, 4: 0.204, 8: 0.214, 16: 0.24}
# Half of all may be late, so that one trial that a busy machine spoilt is soon followed by another.
SAFE = SafeSet(default=Setting(), curve=tuple(CURVE.items()), max_batch=MAX_BATCH, longest_delay_us=480_000,
               load_seconds=0.5, allowed=0.5)
PATIENCE = 240.0
TIMEOUT = 3 * PATIENCE


@dataclass(frozen=True)
class Pod:
    """``told`` is what the batcher's page says, ``metrics`` its figures."""

    server: TritonServer
    key: str
    log: Path
    port: int
    process: asyncio.subprocess.Process

    async def told(self) -> dict[str, object]:
        async with httpx.AsyncClient(timeout=30.0) as client:
            try:
                return dict((await client.get(f"http://{HOST}:{self.port}/batching")).json())
            except httpx.TransportError as error:
                raise AssertionError(f"the batcher does not answer yet: {error!r}") from error

    async def metrics(self) -> str:
        async with httpx.AsyncClient(timeout=30.0) as client:
            return (await client.get(f"http://{HOST}:{self.port}/metrics")).text


class AsInThePod(TritonServer):
    """Its command line is the manifest's, with the key's file where this test has it."""

    def __init__(self, repository: Path, key_file: Path) -> None:
        super().__init__(repository, models=(MODEL,), ready_seconds=60)
        self._key_file = key_file

    def _arguments(self, installation: install.Installation) -> list[str]:
        binary = installation.environment["REAL_TRITON"]
        shell, *rest = guarded([binary, *super()._arguments(installation)])
        assert shell == str(installation.binary)
        return [one.replace(KEY_FILE, str(self._key_file)) for one in rest]


def in_a_shell(find: Callable[[Path], install.Installation]) -> Callable[[Path], install.Installation]:
    def found(scratch: Path) -> install.Installation:
        real = find(scratch)
        return replace(real, binary=Path("/bin/sh"), environment={**real.environment, "REAL_TRITON": str(real.binary)})

    return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pod(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pod]:
    root = tmp_path_factory.mktemp("pod")
    repository, key_file, log = root / "repository", root / "key", root / "batcher.log"
    repository.mkdir()
    write_stand_in(repository, MODEL, MAX_BATCH, CURVE)
    leave_key(key_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(install, "find", in_a_shell(install.find))
        async with AsInThePod(repository, key_file) as server:
            [port] = free_ports(1)
            with log.open("wb") as said:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "enginewright", "adapt", f"--model={MODEL}", f"--key-file={key_file}",
                    f"--safe-set={safe_set_to_text(SAFE)}", f"--port={port}", f"--http-port={number(server.http_url)}",
                    f"--metrics-port={number(server.metrics_address)}", stdin=asyncio.subprocess.DEVNULL, stdout=said,
                    stderr=said, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
            try:
                yield Pod(server, key_file.read_text().strip(), log, port, process)
            finally:
                if process.returncode is None:
                    process.terminate()
                await process.wait()


def number(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def request() -> Request:
    return encode(MODEL, {"x": np.ones((1, 8), np.float32)})


@pytest.mark.timeout(TIMEOUT)
async def test_a_shift_of_the_traffic_is_followed_and_no_request_is_lost(pod: Pod) -> None:
    stop, crowd_gone = asyncio.Event(), asyncio.Event()
    ready: list[int] = []

    async def phase(phase: str, setting: Setting) -> bool:
        said = await pod.told()
        wanted = {"delay_us": setting.delay_us, "preferred": list(setting.preferred)}
        assert (said["phase"], said["setting"]) == (phase, wanted), pod.log.read_text()
        return True

    async def kept(control: ModelControl) -> bool:
        """What it says is what the server has; which setting that is, is for a machine that nobody else uses."""
        said, page = await pod.told(), await pod.metrics()
        assert said["phase"] == "kept", f"{said} {pod.log.read_text()}"
        setting = said["setting"]
        assert isinstance(setting, dict)
        in_force = await control.batching(HOST, MODEL, number(pod.server.http_url))
        assert in_force == Setting(delay_us=setting["delay_us"], preferred=tuple(setting["preferred"])) != Setting()
        assert f"queue_delay_seconds {in_force.delay_us / 1e6}" in page
        return True

    async def probes() -> None:
        """The pod's readiness, asked far more often than the kubelet does."""
        async with httpx.AsyncClient(base_url=pod.server.http_url, timeout=30.0) as client:
            while not stop.is_set():
                ready.append((await client.get("/v2/health/ready")).status_code)
                await asyncio.sleep(0.05)

    await eventually(lambda: phase("default", Setting()), PATIENCE)
    async with Channels(pod.server.grpc_url, count=4) as channels, asyncio.TaskGroup() as group:
        probing = group.create_task(probes())
        crowd = group.create_task(closed_loop(channels, [request()], concurrency=CROWD, seconds=600.0, stop=crowd_gone))
        async with ModelControl(pod.key) as control:
            await eventually(lambda: kept(control), PATIENCE)
        lone = group.create_task(closed_loop(channels, [request()], concurrency=1, seconds=600.0, stop=stop))
        crowd_gone.set()
        await eventually(lambda: phase("default", Setting()), PATIENCE)
        stop.set()
        results = await crowd, await lone
        await probing
    assert [(one.failed, dict(one.errors)) for one in results] == [(0, {})] * 2
    assert min(one.requests for one in results) > 0
    assert set(ready) == {200}
    page = await pod.metrics()
    assert 'loads_total{phase="trial"}' in page
    assert 'loads_total{phase="default"}' in page


async def test_its_log_says_what_is_in_force_and_why(pod: Pod) -> None:
    lines = [json.loads(line) for line in pod.log.read_text().splitlines()]
    trials = [line for line in lines if line["event"] == "batching" and line["phase"] == "trial"]
    assert trials
    assert "are served in batches of" in trials[0]["why"]
    assert any(line["event"] == "batching is in force" for line in lines)


async def test_who_has_no_key_changes_nothing(pod: Pod) -> None:
    http = number(pod.server.http_url)
    for key in ("", "0" * 64):
        async with ModelControl(key) as stranger:
            with pytest.raises(RefusedError, match="answered 403"):
                await stranger.apply(HOST, MODEL, Setting(delay_us=7700), http)
    async with httpx.AsyncClient(base_url=pod.server.http_url, timeout=30.0) as client:
        for path in ("/v2/repository/index", f"/v2/repository/models/{MODEL}/unload"):
            assert (await client.post(path, json={})).status_code == 403, path


@pytest.mark.parametrize("knows", [False, True])
async def test_nor_by_grpc(pod: Pod, knows: bool) -> None:
    """The name of the metadata is the header's; that it opens shows that it is the key which is asked for."""
    async with grpc.aio.insecure_channel(pod.server.grpc_url) as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/RepositoryIndex",
            request_serializer=service_pb2.RepositoryIndexRequest.SerializeToString,
            response_deserializer=service_pb2.RepositoryIndexResponse.FromString)
        key = pod.key if knows else "0" * 64
        found = asyncio.ensure_future(call(service_pb2.RepositoryIndexRequest(), metadata=(
            (KEY_HEADER, key), (f"triton-grpc-protocol-{KEY_HEADER}", key))))
        await asyncio.wait({found})
    if knows:
        assert [one.name for one in found.result().models] == [MODEL]
    else:
        assert isinstance(found.exception(), grpc.aio.AioRpcError)
        assert "restrict" in str(found.exception())


async def test_no_log_has_the_key(pod: Pod) -> None:
    assert pod.key not in pod.server.log_file.read_text(errors="replace")
    assert pod.key not in pod.log.read_text()


async def test_it_ends_when_it_is_told_to(pod: Pod) -> None:
    pod.process.terminate()
    assert await asyncio.wait_for(pod.process.wait(), 30.0) == 0
