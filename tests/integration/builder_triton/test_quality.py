"""The quality monitor beside a real tritonserver: sampled requests, scored against the source model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from enginewright.clients.probe import ProbeClient
from enginewright.core.probe import make_request
from enginewright_builder.contract import AccuracyRequest, QualityReport, ServingChoice
from enginewright_builder.engines.base import Artifact, ExportedModel
from enginewright_builder.quality.kept import keep_reference
from enginewright_builder.quality.mirror import Mirror
from enginewright_builder.quality.monitor import Monitor
from enginewright_builder.quality.reference import Reference, read_about
from enginewright_builder.quality.tap import HOST, Tap, TapClosedError
from enginewright_builder.quality.window import Window
from enginewright_builder.tensors import Array
from enginewright_builder.triton.ports import free_ports
from enginewright_builder.triton.process import descendants
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from support.apiserver import eventually

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]
WEIGHTS = np.random.default_rng(7).standard_normal((8, 4)).astype(np.float32)
OTHER = np.random.default_rng(8).standard_normal((8, 4)).astype(np.float32)


@dataclass(frozen=True)
class Serving:
    """A server with its trace extension as the operator's manifests switch it on."""

    server: TritonServer
    traces: Path
    reference: Path

    @property
    def port(self) -> int:
        return int(self.server.http_url.rpartition(":")[2])

    async def ask(self, count: int, *, rows: int = 1) -> None:
        """``count`` requests, one after the other, each of another input."""
        dice = np.random.default_rng(count)
        async with httpx.AsyncClient(base_url=self.server.http_url, trust_env=False, timeout=60) as client:
            for _ in range(count):
                x = dice.standard_normal((rows, 3, 8))
                answer = await client.post("/v2/models/multiply/infer", json={"inputs": [
                    {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist()}]})
                answer.raise_for_status()

    def monitor(self, clock: Callable[[], float], *, share: float = 1.0, per_minute: int = 600,
                candidate: int | None = None) -> Monitor:
        """``candidate`` is the port of a server that sampled requests are sent to as well."""
        reference = Reference(self.reference, read_about(self.reference), 1)
        tap = Tap("multiply", self.traces, share=share, per_minute=per_minute, port=self.port)
        mirror = Mirror("localhost", "multiply", Window(reference.metric, 1), interface=reference.about.interface,
                        port=candidate, own="10.0.0.1",
                        resolve=lambda host, port: frozenset({"127.0.0.1"})) if candidate else None
        return Monitor(reference, tap, Window(reference.metric, 1000), clock, mirror)

    async def written(self, files: int) -> None:
        """Waits until that many trace files are whole: the server writes them after it has answered."""
        async def enough() -> bool:
            return sum(path.read_bytes().endswith(b"]") for path in self.traces.iterdir()) >= files
        await until(enough)


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    async def held() -> bool | None:
        return await holds() or None
    await eventually(held, seconds)


@asynccontextmanager
async def serving(artifact: Artifact, root: Path, weights: Array | None = None) -> AsyncIterator[Serving]:
    folder = write_model(root / "repository", "multiply", artifact, ServingChoice(max_batch_size=8), cores=1)
    exported = ExportedModel(path=artifact.files["model.onnx"], interface=artifact.interface, opset=17)
    keep_reference(root, exported, AccuracyRequest(), None)
    if weights is not None:
        path = folder / "1" / "model.onnx"
        model = onnx.load(path)
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
        path.unlink()  # a link to what other tests serve
        onnx.save(model, path)
    traces = root / "traces"
    traces.mkdir()
    # As an installation may have it (config.serverArgs); ours come after.
    options = ("--trace-config=mode=opentelemetry", "--trace-config=triton,file=/nowhere/trace.json",
               "--trace-config=mode=triton", f"--trace-config=triton,file={traces}/trace.json")
    async with TritonServer(root / "repository", models=("multiply",), options=options) as server:
        yield Serving(server, traces, root / "reference")


async def looked(served: Serving, monitor: Monitor, count: int, *, rows: int = 1) -> QualityReport:
    """One turn: the tap is opened, requests come, and what was traced is scored."""
    await asyncio.to_thread(monitor.look)
    await served.ask(count, rows=rows)
    await served.written(count)
    await asyncio.to_thread(monitor.look)
    return monitor.snapshot().report


@pytest.mark.parametrize(("weights", "low", "high"), [
    (None, 0.999999, 1.0), (WEIGHTS * np.float32(1.01), 0.9999, 1.0), (OTHER, 0.0, 0.6),
    (WEIGHTS * np.float32(3), 0.0, 0.0), (-WEIGHTS, 0.0, 0.0), (np.full((8, 4), np.nan, np.float32), 0.0, 0.0),
], ids=["sound", "nearly the same", "other weights", "three times as large", "negated", "NaN"])
async def test_live_answers_are_scored_by_the_gates_metric(weights: Array | None, low: float, high: float,
                                                           artifact: Artifact, tmp_path: Path) -> None:
    async with serving(artifact, tmp_path, weights) as served:
        report = await looked(served, served.monitor(lambda: 0.0), 12, rows=4)
    assert (report.metric, report.tolerance, report.problem) == ("cosine", 0.01, "")
    assert (report.requests, report.samples) == (12, 12)
    assert low <= report.total / report.samples <= high + 1e-6


@pytest.mark.parametrize(("weights", "low", "high"), [
    (None, 0.999999, 1.0), (WEIGHTS * np.float32(1.01), 0.9999, 1.0), (OTHER, 0.0, 0.6), (-WEIGHTS, 0.0, 0.0),
], ids=["sound", "nearly the same", "other weights", "negated"])
async def test_what_was_sampled_is_asked_of_a_candidate_as_well(weights: Array | None, low: float, high: float,
                                                                artifact: Artifact, tmp_path: Path) -> None:
    """Of which no client hears; the candidate's own tap stays closed."""
    stable, other = tmp_path / "stable", tmp_path / "candidate"
    stable.mkdir()
    other.mkdir()
    async with serving(artifact, stable) as served, serving(artifact, other, weights) as candidate:
        report = await looked(served, served.monitor(lambda: 0.0, candidate=candidate.port), 12, rows=4)
        assert not list(candidate.traces.iterdir())
    assert (report.samples, report.mirrored, report.targets) == (12, 12, ("127.0.0.1",))
    assert report.total / report.samples == pytest.approx(1.0, abs=1e-5)
    assert low <= report.agreed / report.mirrored <= high + 1e-6


async def test_what_the_operator_asks_by_itself_is_no_live_request(artifact: Artifact, tmp_path: Path) -> None:
    async with serving(artifact, tmp_path) as served, ProbeClient(deadline=60) as client:
        monitor = served.monitor(lambda: 0.0)
        await asyncio.to_thread(monitor.look)
        metadata = await client.metadata(HOST, "multiply", served.port)
        for seed in range(3):
            await client.infer(HOST, "multiply", make_request(metadata, seed), served.port)
        await served.ask(2)
        await served.written(5)
        await asyncio.to_thread(monitor.look)
    assert monitor.snapshot().report.requests == 2


async def test_what_is_sampled_is_bounded_and_nothing_of_it_stays(artifact: Artifact, tmp_path: Path) -> None:
    """At 36 a minute a turn of five seconds allows three; a share of a quarter takes each fourth of those that come."""
    now = [0.0]
    async with serving(artifact, tmp_path) as served:
        monitor = served.monitor(lambda: now[0], per_minute=36)
        await asyncio.to_thread(monitor.look)
        await served.ask(40)
        await served.written(3)
        now[0] += 5.0
        await asyncio.to_thread(monitor.look)
        assert monitor.snapshot().report.requests == 3
        assert not list(served.traces.iterdir())
        sparing = served.monitor(lambda: now[0], share=0.25)
        await asyncio.to_thread(sparing.look)
        await served.ask(40)
        await served.written(10)
        await asyncio.to_thread(sparing.look)
        assert sparing.snapshot().report.requests == 10
        assert not list(served.traces.iterdir())


async def test_a_tap_that_nobody_opens_again_closes_by_itself(artifact: Artifact, tmp_path: Path) -> None:
    async with serving(artifact, tmp_path) as served:
        tap = Tap("multiply", served.traces, share=1.0, per_minute=60, port=served.port)
        assert tap.open(5.0) == 5
        await served.ask(20)
        await served.written(5)
        await served.ask(20)
        assert len(list(served.traces.iterdir())) == 5
        assert len(list(tap.drain())) == 5


async def test_a_file_that_is_not_whole_is_left_once_then_removed(artifact: Artifact, tmp_path: Path) -> None:
    async with serving(artifact, tmp_path) as served:
        monitor = served.monitor(lambda: 0.0)
        (served.traces / "trace.json.99").write_bytes(b'[{"id":1,')
        await asyncio.to_thread(monitor.look)
        assert (served.traces / "trace.json.99").exists()
        await asyncio.to_thread(monitor.look)
        assert not (served.traces / "trace.json.99").exists()
        assert monitor.snapshot().skipped == 1


async def test_without_a_server_it_says_so() -> None:
    [port] = free_ports(1)
    with pytest.raises(TapClosedError, match="does not answer"):
        Tap("multiply", Path(), share=1.0, per_minute=60, port=port).open(5.0)


async def test_as_a_container_it_survives_its_monitor(artifact: Artifact, tmp_path: Path) -> None:
    """Whole, as the pod runs it: figures over HTTP, a monitor that is killed and comes again, an orderly end."""
    async with serving(artifact, tmp_path) as served:
        [port] = free_ports(1)  # not before the server has its own: nothing holds it until the monitor does
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "enginewright_builder.quality", str(served.reference), "--model=multiply",
            f"--traces={served.traces}", "--share=1", "--per-minute=600", "--window=500", f"--port={port}",
            f"--triton-port={served.port}",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)})
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
                async def report() -> QualityReport | None:
                    with contextlib.suppress(httpx.TransportError):
                        return QualityReport.from_json((await client.get("/quality")).raise_for_status().text)
                    return None

                async def measures() -> bool:
                    await served.ask(5)
                    told = await report()
                    return told is not None and told.samples >= 10

                await until(measures, 120)
                told = await report()
                assert told is not None
                assert told.total / told.samples == pytest.approx(1.0)
                page = (await client.get("/metrics")).raise_for_status().text
                assert "\nenginewright_quality_replica_agreement 1.0" in page or "_agreement 0.99999" in page
                assert (await client.get("/traces")).status_code == 404

                [first] = [pid for pid in descendants(child.pid) if pid != child.pid]
                os.kill(first, signal.SIGKILL)

                async def another() -> bool:
                    return any(pid not in (child.pid, first) for pid in descendants(child.pid))

                await until(another)
                assert child.returncode is None
                await until(measures, 120)
        finally:
            child.terminate()
            assert await asyncio.wait_for(child.wait(), 60) == 0


async def test_a_model_whose_tensors_cannot_be_traced_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "reference.json").write_text(json.dumps({
        "metric": "cosine", "tolerance": 0.01,
        "interface": {"inputs": [{"name": "image", "dtype": "float16", "shape": ["batch", 8]}], "outputs": []}}))
    assert read_about(tmp_path).problem == "Triton's trace does not hold tensors of this type: image (float16)"
