"""The operator under test: in this process, where its parts can be looked at, or as a process that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from enginewright.clients.activator import ActivatorClient
from enginewright.clients.credentials import load_configuration
from enginewright.clients.errors import TransientError
from enginewright.clients.kube import KubeClient
from enginewright.clients.probe import ProbeClient
from enginewright.clients.prometheus import PrometheusClient
from enginewright.clients.quality import QualityClient
from enginewright.clients.resources import CONFIG_MAP, OPTIMISED_MODEL, SERVICE
from enginewright.clients.signals import ReplicaMetrics
from enginewright.clients.triton import TritonClient
from enginewright.core.config import OperatorConfig
from enginewright.core.labels import METRICS_PORT, QUALITY_PORT
from enginewright.reconcile.metrics import Metrics
from enginewright.runtime import Operator, Options
from enginewright_builder.contract import QualityReport
from support.apiserver import PATIENCE, Models, eventually

ROOT = Path(__file__).resolve().parents[3]
# Kinds that the operator alone writes.
OURS_ALONE = (OPTIMISED_MODEL, CONFIG_MAP, SERVICE)


@dataclass
class Depths(TritonClient):
    """Stands where the network to the pods would be: queue depth by the address that a pod was given, or no answer."""

    queued: dict[str, float] = field(default_factory=dict)
    silent: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    async def scrape(self, address: str, port: int = METRICS_PORT) -> ReplicaMetrics:
        if self.silent:
            raise TransientError("no answer")
        return ReplicaMetrics(pending={"m": self.queued.get(address, 0.0)})


@dataclass
class Holding(ActivatorClient):
    """Stands where the network to activators would be: how many requests are held, and ``asked`` how often."""

    requests: float = 0.0
    asked: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def hold(self, requests: float) -> None:
        self.requests = requests
        if requests:
            self.changed.set()
        else:
            self.changed.clear()

    async def held(self, address: str, wait: float = 0.0, port: int = METRICS_PORT) -> float:
        self.asked += 1
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), wait)
        return self.requests


@dataclass
class Scores(QualityClient):
    """Stands where the network to quality monitors would be: how many live answers each has scored, and their mean."""

    samples: int = 0
    mean: float = 1.0

    def __post_init__(self) -> None:
        super().__init__()

    async def report(self, address: str, port: int = QUALITY_PORT) -> QualityReport:
        return QualityReport(metric="cosine", tolerance=0.01, samples=self.samples, total=self.samples * self.mean)


@contextlib.asynccontextmanager
async def embedded(
    kubeconfig: Path, namespace: str, *, resync: float = 300.0, triton: TritonClient | None = None,
    activators: ActivatorClient | None = None, quality: QualityClient | None = None,
    config: OperatorConfig | None = None, others: Sequence[str] = (),
) -> AsyncIterator[Operator]:
    """Of ``namespace`` and ``others``, until the block ends; a part that dies fails the test."""
    options = Options(config=config or OperatorConfig(), namespaces=(namespace, *others), kubeconfig=kubeconfig,
                      resync=resync)
    metrics = Metrics()
    async with (
        KubeClient(await load_configuration(str(kubeconfig)), observer=metrics.called) as kube,
        triton or TritonClient() as scraper,
        PrometheusClient() as prometheus,
        ProbeClient() as probes,
        activators or ActivatorClient() as holders,
        quality or QualityClient() as monitors,
    ):
        operator = Operator(options, kube, scraper, prometheus, probes, metrics, holders, monitors)
        task = asyncio.create_task(operator.run(), name="operator under test")
        try:
            yield operator
            if task.done():
                await task
        finally:
            task.cancel()
            _, running = await asyncio.wait({task}, timeout=PATIENCE)
            assert not running, f"the operator did not stop; still running: {asyncio.all_tasks()}"
            if not task.cancelled():
                task.result()


@pytest.fixture
async def operator(operator_kubeconfig: Path, namespace: str) -> AsyncIterator[Operator]:
    async with embedded(operator_kubeconfig, namespace) as running:
        yield running


class OperatorProcess:
    """``enginewright run`` as a child, its log in ``log``. Without a ``lease`` (``NAMESPACE/NAME``) each start has
    one of its own: the test ended the process before, so that no start waits until a Lease has run out."""

    def __init__(self, kubeconfig: Path, namespace: str, log: Path, lease: str = "") -> None:
        self._arguments = ["run", f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", "--metrics-port=0",
                           "--health-port=0"]
        self._namespace, self._lease = namespace, lease
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        lease = self._lease or f"{self._namespace}/operator-{uuid.uuid4().hex[:8]}"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "operator"), str(ROOT / "builders")))}
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "enginewright", *self._arguments, f"--leader-lease={lease}", env=environment,
                stdout=log, stderr=log,
                # The kernel wakes what is stopped in a process group that loses its shell.
                start_new_session=True,
            )

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def kill(self, number: int = signal.SIGKILL) -> int:
        """Returns the exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()

    @property
    def gone(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    async def ended(self, patience: float = PATIENCE) -> int:
        """Waits for it to end by itself; returns the exit code."""
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), patience)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[OperatorProcess]:
        await self.start()
        try:
            yield self
        finally:
            await self.kill()


@contextlib.asynccontextmanager
async def operating(arguments: Sequence[str], log: Path) -> AsyncIterator[int]:
    """``enginewright run`` for the length of the block, which gets its process id. Raises :class:`RuntimeError` as soon
    as it ends by itself."""
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "enginewright", "run", "--health-port=0", *arguments, stdout=sink, stderr=sink,
        )

    async def stay() -> None:
        code = await process.wait()
        raise RuntimeError(f"the operator ended with {code}: {_tail(log)}")

    try:
        async with asyncio.TaskGroup() as group:
            staying = group.create_task(stay(), name="operator")
            yield process.pid
            staying.cancel()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _tail(log: Path) -> str:
    return log.read_text()[-2000:]


async def settled(operator: Operator) -> None:
    """Until three passes in a row have written nothing: an operator that resyncs often, or the third never comes."""
    writes, since = written(operator), done(operator)

    async def quiet() -> bool:
        nonlocal writes, since
        if written(operator) != writes:
            writes, since = written(operator), done(operator)
        return done(operator) >= since + 3

    await eventually(quiet)


async def nothing_is_written(operator: Operator, models: Models) -> None:
    """Once the operator has settled, several more of its passes write nothing."""
    await settled(operator)
    # Jobs, pods and events are written by others, too: for those the operator's calls are counted.
    before, writes, passes = await models.versions(*OURS_ALONE), written(operator), done(operator)

    async def several_more_passes() -> bool:
        return done(operator) >= passes + 4

    await eventually(several_more_passes)
    assert await models.versions(*OURS_ALONE) == before
    assert written(operator) == writes


def written(operator: Operator) -> float:
    """Calls to the apiserver that would change something, changed or not."""
    verbs = ("apply", "create", "patch", "delete", "scale")
    return sum(
        sample.value
        for family in operator.metrics.api_seconds.collect()
        for sample in family.samples
        if sample.name.endswith("_count") and sample.labels["verb"] in verbs
    )


def done(operator: Operator) -> float:
    return float(operator.metrics.passes.labels("ok")._value.get())
