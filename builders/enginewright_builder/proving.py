"""The second half of a build: what the first left is served, measured, held against its own answers and published.

Needs no device itself: the server has it. So it can stand beside a server of another image as well as start one.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from enginewright_builder.contract import (
    MODEL_FOLDER,
    MODEL_REPOSITORY,
    SMOKE_FILE,
    BatchTime,
    EngineSummary,
    MemoryFigures,
    Outcome,
    ServingChoice,
)
from enginewright_builder.engine_store import store
from enginewright_builder.engine_store.manifest import manifest_digest
from enginewright_builder.engines.base import Artifact
from enginewright_builder.evidence.appraisal import appraise
from enginewright_builder.evidence.content import build_report
from enginewright_builder.hand_over import Handed
from enginewright_builder.load import run_on_time
from enginewright_builder.report import write_report
from enginewright_builder.report.performance import Performance, device_class
from enginewright_builder.steps import (
    MEMORY_SECONDS,
    MEMORY_SHARE,
    SWEEP_SECONDS,
    SWEEP_SHARE,
    Budget,
    Steps,
    now,
)
from enginewright_builder.sweep import SweepResult, Task
from enginewright_builder.sweep.bench import make_requests
from enginewright_builder.sweep.ways import sweep_ways
from enginewright_builder.triton import smoke_record
from enginewright_builder.triton.client import Address, HungError, Server, Usage
from enginewright_builder.triton.memory import MemoryWatch
from enginewright_builder.triton.patience import OWN_READY_SECONDS, READY_SECONDS
from enginewright_builder.triton.prove import Proof, prove_on
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from enginewright_builder.triton.witness import Witness

log = logging.getLogger(__name__)
T = TypeVar("T")


class Servers(Protocol):
    """Where models are served: in ``repository``, as this process sees the folder that the server finds them in."""

    @property
    def repository(self) -> Path: ...

    @property
    def fresh(self) -> bool:
        """Whether each that is opened is a process that has loaded nothing before."""
        ...

    def open(self, gpus: tuple[int, ...], *, sliced: bool = False) -> Server:
        """One that has no model loaded: with :class:`OwnServers` a process that starts, else the one that is there.
        ``sliced``: its GPU is a MIG slice."""
        ...


@dataclass(frozen=True)
class OwnServers:
    """Each a process on this machine, which ends when it is left."""

    repository: Path
    fresh = True

    def open(self, gpus: tuple[int, ...], *, sliced: bool = False) -> Server:
        return TritonServer(self.repository, gpus=gpus, ready_seconds=OWN_READY_SECONDS)


@dataclass(frozen=True, kw_only=True)
class GivenServer:
    """The one at ``address``, which another process runs."""

    repository: Path
    address: Address
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    ready_seconds: float = READY_SECONDS
    witness: Witness | None = None
    fresh = False

    def open(self, gpus: tuple[int, ...], *, sliced: bool = False) -> Server:
        return Server(self.address, gpus=gpus, headers=self.headers, ready_seconds=self.ready_seconds,
                      witness=self.witness, sliced=sliced)


def prove_finalists(handed: Handed, servers: Servers, steps: Steps, budget: Budget) -> Outcome:
    """Raises :class:`BuilderError`, or anything for a bug; nothing is published then."""
    document, staging = handed.document, handed.staging
    request = document.request
    gpus = tuple(range(request.device.gpu_count)) if request.device.accelerator == "gpu" else ()
    servers.repository.mkdir(parents=True, exist_ok=True)
    artifact, swept, performance, empty = _with_another(
        servers, steps, lambda: _measure(handed, servers, steps, budget, gpus))
    serving = _serving(handed, swept)
    with steps.step("repository", "writing the model repository"):
        folder = write_model(staging / MODEL_REPOSITORY, MODEL_FOLDER, artifact, serving, gpus=gpus,
                             warmup=handed.warmup, cores=document.hardware.cores, missing=document.takes_missing)
        config = (folder / "config.pbtxt").read_text()
    with steps.step("verify-load", "loading the finished repository in a tritonserver"):
        proof, memory = _with_another(
            servers, steps, lambda: _prove(handed, folder, servers, gpus, swept, empty, budget))
        if not servers.fresh:
            proof = dataclasses.replace(proof, load_seconds=proof.load_seconds + backend_seconds(swept))
    outcome = Outcome(kind="build", ok=True, source=document.source, fingerprint=request.fingerprint(), built=now(),
                      build_seconds=round(budget.spent, 1), serving=serving, candidates=document.candidates,
                      engine=_summary(handed, artifact, swept, proof, memory, performance))
    with steps.step("publish", "writing the report and publishing"):
        took = {**document.steps, **steps.seconds}
        write_report(build_report(document, outcome, swept, proof, config, took, performance), staging)
        manifest = store.of(request, steps.tracker.note).publish(staging, request.fingerprint(),
                                                                        outcome=outcome)
    steps.tracker.step("done", "published")
    return dataclasses.replace(manifest.outcome, manifest_digest=manifest_digest(manifest))


def _with_another(servers: Servers, steps: Steps, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What ``work`` finds. Where a server hangs while it loads, with another server once more: two of four runs of all
    tests had one load that came to no end in ten minutes, and 120 loads of the same repository beside other work took
    seconds. Raises :class:`HungError` where the server is not this program's own, and where the second one hangs."""
    try:
        return run_on_time(work())
    except HungError as error:
        if not servers.fresh:
            raise
        steps.tracker.note("tritonserver hangs while it loads; another one is started")
        log.warning("%s", error.message)
        return run_on_time(work())


async def _measure(handed: Handed, servers: Servers, steps: Steps, budget: Budget, gpus: tuple[int, ...]
                   ) -> tuple[Artifact, SweepResult, Performance, Usage]:
    """On one server, as each start of one takes seconds. Also what that took before it had loaded anything."""
    async with servers.open(gpus, sliced=_sliced(handed)) as server:
        empty = await server.usage()
        with steps.step("sweep", f"serving {handed.document.name} on tritonserver") as report:
            artifact, swept = await sweep_ways(server, servers.repository, handed.artifact,
                                               lambda way: _task(handed, way, budget, gpus, report))
        with steps.step("appraise", "comparing with plain serving and with what the device could do"):
            performance = await appraise(server, servers.repository, handed, artifact, swept, budget, gpus)
            return artifact, swept, performance, empty


def _task(handed: Handed, way: Artifact, budget: Budget, gpus: tuple[int, ...],
          progress: Callable[[float, str], None]) -> Task:
    request = handed.document.request
    return Task(artifact=way, model_name=request.model_name, inputs=handed.requests,
                max_batch_size=handed.max_batch_size, objective=request.objective, batching=request.batching,
                instances=request.instances, gpus=gpus, cores=handed.document.hardware.cores,
                budget_seconds=budget.share(SWEEP_SHARE, SWEEP_SECONDS), progress=progress)


def _sliced(handed: Handed) -> bool:
    return bool(handed.document.request.device.mig_profile)


def _serving(handed: Handed, swept: SweepResult) -> ServingChoice:
    return dataclasses.replace(swept.serving, max_batch_size=min(swept.serving.max_batch_size, handed.max_batch_size))


def backend_seconds(swept: SweepResult) -> float:
    """What the first load took beyond a later one: the backend's libraries, and the device's context. A replica has
    them to do before its model, and a server that has loaded a model before has not."""
    return max(0.0, swept.cold_start_seconds - swept.warm_load_seconds) if swept.warm_load_seconds else 0.0


async def _prove(handed: Handed, folder: Path, servers: Servers, gpus: tuple[int, ...], swept: SweepResult,
                 empty: Usage, budget: Budget) -> tuple[Proof, MemoryFigures | None]:
    """Also leaves what replicas are to be tried with beside the repository. Memory is measured here, as this server is
    what a replica will be: the finished repository and, where a server can be started for it, a process without a
    past."""
    smoke = handed.smoke
    repeated = [smoke.request(batch) for batch in smoke.batches] if smoke else []
    served = servers.repository / MODEL_FOLDER
    shutil.rmtree(served, ignore_errors=True)
    shutil.copytree(folder, served, copy_function=_linked)
    try:
        async with servers.open(gpus, sliced=_sliced(handed)) as server:
            async with MemoryWatch(server, empty) as watch:
                proof = await prove_on(server, MODEL_FOLDER, handed.cases, repeated=repeated, mixed=handed.mixed,
                                       loss=handed.document.request.accuracy.tolerance)
                await watch.loaded()
                await watch.under_load(make_requests(MODEL_FOLDER, handed.requests, swept.serving.max_batch_size),
                                       concurrency=swept.best.concurrency,
                                       most_seconds=budget.share(MEMORY_SHARE, MEMORY_SECONDS))
            await server.unload(MODEL_FOLDER)
    finally:
        shutil.rmtree(served, ignore_errors=True)
    if smoke:
        (handed.staging / SMOKE_FILE).write_text(smoke_record.record(smoke, proof.answers), encoding="utf-8")
    return proof, watch.figures


def _linked(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
    return target


def _summary(handed: Handed, artifact: Artifact, swept: SweepResult, proof: Proof, memory: MemoryFigures | None,
             performance: Performance) -> EngineSummary:
    document, best = handed.document, swept.best
    devices, count = device_class(document.request.device)
    pre, post = best.layers.preprocess_ms, best.layers.postprocess_ms
    return EngineSummary(
        backend=artifact.rung.backend, precision=artifact.rung.precision, triton_backend=artifact.triton_backend,
        size_bytes=artifact.size_bytes, speedup=round(document.speedup, 3), p50_ms=best.p50_ms, p95_ms=best.p95_ms,
        p99_ms=best.p99_ms, throughput=best.throughput, accuracy=document.accuracy.value,
        accuracy_low=document.accuracy.low, device=document.hardware.device, runtime_version=artifact.runtime_version,
        load_seconds=round(proof.load_seconds, 3), memory_bytes=proof.memory_bytes, objective_met=swept.objective_met,
        evaluation=document.accuracy.evaluation, throughput_at_objective=performance.throughput_at_objective,
        device_class=devices, device_count=count, inferences_per_joule=performance.inferences_per_joule,
        gpu_utilisation=best.use.utilisation if best.use else None, power_watts=best.use.watts if best.use else None,
        bound=performance.bound, fallback=document.fallback,
        service_curve=tuple(BatchTime(batch=one.batch, p50_ms=round(one.p50_ms, 4)) for one in swept.service_curve),
        task=document.accuracy.task, groups=document.accuracy.summary, p999_ms=best.p999_ms, requests=best.requests,
        mean_ms=None if pre is None and post is None else best.mean_ms, pre_ms=pre, post_ms=post,
        memory=memory, requests_to_show=swept.requests_to_show)
