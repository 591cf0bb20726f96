"""Puts the operator together and runs it until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from enginewright.act.execute import Actor
from enginewright.act.report import Reporter
from enginewright.clients.activator import ActivatorClient
from enginewright.clients.credentials import load_configuration, own_namespace
from enginewright.clients.events import EventRecorder
from enginewright.clients.kube import CallObserver, KubeClient
from enginewright.clients.probe import ProbeClient
from enginewright.clients.prometheus import PrometheusClient
from enginewright.clients.quality import QualityClient
from enginewright.clients.resources import Resource
from enginewright.clients.triton import TritonClient
from enginewright.core.config import OperatorConfig
from enginewright.handlers.translate import Translator
from enginewright.handlers.watch import Watcher
from enginewright.observe.fields import Raw
from enginewright.observe.keys import Key
from enginewright.observe.memory import Memory
from enginewright.observe.nodes import NodeReader
from enginewright.observe.prober import Prober
from enginewright.observe.quality import QualityReader
from enginewright.observe.records import RecordReader
from enginewright.observe.references import ReferenceReader
from enginewright.observe.signals import Signals
from enginewright.observe.world import World
from enginewright.reconcile.exposed import Exposed
from enginewright.reconcile.hand_over import HandOver
from enginewright.reconcile.health import Health, HealthLimits
from enginewright.reconcile.housekeeping import PERIOD, Housekeeper
from enginewright.reconcile.http import health_app, metrics_app, serving
from enginewright.reconcile.known import Known
from enginewright.reconcile.leadership import Fence, Leadership, LeadershipLostError, LeaseThread, Terms
from enginewright.reconcile.log_reader import LogReader
from enginewright.reconcile.loop import Loop
from enginewright.reconcile.metered import Metered
from enginewright.reconcile.metrics import Metrics
from enginewright.reconcile.passes import Parts, Reconciler
from enginewright.reconcile.queue import Lane, WorkQueue
from enginewright.reconcile.remembering import Healer
from enginewright.reconcile.resync import Resync
from enginewright.reconcile.served_schema import ServedSchema

LEASE_NAME: Final = "enginewright"
log = structlog.get_logger(__name__)


class OperatorEndedError(RuntimeError):
    """A part that runs forever has ended; the process must be started again."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """``namespaces`` empty watches all. Ports: 0 picks one. ``resync`` and ``housekeeping`` are seconds
    between rounds. The operator works only while it holds ``lease`` (namespace, name); None: ``enginewright`` in the
    first of ``namespaces``, else in the namespace of its credentials."""

    config: OperatorConfig
    namespaces: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    metrics_port: int = 8080
    health_port: int = 8081
    workers: int = 8
    resync: float = 300.0
    housekeeping: float = PERIOD
    lease: tuple[str, str] | None = None


class Operator:
    """One operator over open clients. ``run`` ends only by cancellation or by an error."""

    def __init__(self, options: Options, kube: KubeClient, triton: TritonClient, prometheus: PrometheusClient,
                 probes: ProbeClient, metrics: Metrics, activators: ActivatorClient | None = None,
                 quality: QualityClient | None = None) -> None:
        self.kube = kube
        self.queue: WorkQueue[Key] = WorkQueue()
        self.known = Known()
        self.metrics = metrics
        self.signals = Signals(
            triton, prometheus, wake=partial(self.queue.add, lane=Lane.SCALING),
            tell=partial(self.queue.add, lane=Lane.ROUTINE), clock=time.monotonic, scraped=metrics.scraped,
            prober=Prober(probes, time.monotonic), activators=activators,
        )
        translator = Translator(self.known)
        self.memory = Memory(
            kube, options.namespaces, unseen=lambda resource, raw: self._wake(translator.keys(resource, raw))
        )
        kube.tell_writes(self.memory.wrote)
        self.logs = LogReader(kube, self.queue.add)
        self.schema = ServedSchema(kube)
        parts = self._parts(options, kube, quality)
        metrics.registry.register(parts.exposed)
        metrics.registry.register(Metered(self.signals.drawn))
        reader = ReferenceReader(kube, parts.world.now, options.namespaces, options.config.default_store)
        self.housekeeper = Housekeeper(reader, parts.actor, options.config, options.housekeeping)
        self.loop = Loop(self.queue, Reconciler(parts), metrics, options.workers)
        self.resync = Resync(
            kube, self.queue, self.known, metrics, namespaces=options.namespaces, period=options.resync,
        )
        self.healer = Healer(self.memory, metrics, options.resync)
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        hand = HandOver(asyncio.get_running_loop())
        self.watcher = Watcher(
            translator, wake=hand.over(self._watched), ended=hand.over(self._kopf_ended),
            saw=hand.over(self._saw), namespaces=options.namespaces,
            kubeconfig=str(options.kubeconfig) if options.kubeconfig else None,
        )
        self.health = Health(
            watching=self.watcher.watching, oldest_pass=self.loop.oldest_pass, last_resync=lambda: self.resync.last,
            limits=HealthLimits(resync_age=max(HealthLimits.resync_age, 3 * options.resync)),
        )
        self._expose()

    def _parts(self, options: Options, kube: KubeClient, quality: QualityClient | None) -> Parts:
        """What a pass is made of, from reading to reporting."""
        metrics = self.metrics
        world = World(
            kube, lambda: datetime.now(UTC), time.monotonic, config=options.config, logs=self.logs,
            records=RecordReader(kube, lambda why: metrics.skipped.labels(why).inc(), self.memory),
            nodes=NodeReader(kube, time.monotonic) if options.config.observe_nodes else None,
            quality=QualityReader(quality, time.monotonic) if quality else None, memory=self.memory,
        )
        recorder = EventRecorder(kube, socket.gethostname())
        return Parts(
            world=world, actor=Actor(kube, metrics.acted),
            reporter=Reporter(kube, recorder, self.schema, metrics.status_writes.inc),
            signals=self.signals, known=self.known, exposed=Exposed(), config=options.config,
            looked=lambda where: metrics.looks.labels(where).inc(),
            urgent=lambda: self.queue.rising > 1, crowded=lambda: self.queue.waiting(Lane.ASKED) > 0,
        )

    def _expose(self) -> None:
        gauge = self.metrics.gauge
        gauge("enginewright_queue_length", "Objects that wait for a pass.", lambda: len(self.queue))
        gauge("enginewright_queue_delayed", "Objects with a pass at a later time.", lambda: self.queue.delayed)
        gauge("enginewright_queue_backoff", "Objects whose last pass failed on what time heals.",
              lambda: self.loop.backoff)
        gauge("enginewright_objects", "Objects that the operator knows.", lambda: len(self.known))
        gauge("enginewright_crd_missing_fields", "Fields of this operator that the cluster's CRD lacks.",
              lambda: len(self.schema.missing))
        gauge("enginewright_remembered_objects", "Objects of all kinds that the operator remembers.", self.memory.count)
        gauge("enginewright_remembered_bytes", "Bytes that the remembered objects take, packed.",
              lambda: self.memory.held)
        gauge("enginewright_scrapers", "Objects whose replicas are scraped.", lambda: len(self.signals))
        gauge("enginewright_scrape_period_seconds", "Seconds between two readings of a replica.",
              lambda: self.signals.period)
        gauge("enginewright_tasks", "Tasks of asyncio that have not ended, kopf's included.",
              lambda: len(asyncio.all_tasks()) + self.watcher.tasks())

    async def run(self) -> None:
        """Raises :class:`OperatorEndedError` when kopf stops, and whatever another part died of."""
        self.watcher.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.loop.run(), name="workers")
                group.create_task(self.logs.run(), name="logs")
                group.create_task(self.resync.run(), name="resync")
                group.create_task(self.healer.run(), name="memory")
                group.create_task(self.schema.run(), name="schema")
                group.create_task(self.health.beat(), name="heartbeat")
                group.create_task(self.housekeeper.run(), name="housekeeping")
                group.create_task(self._until_kopf_ends(), name="kopf")
        finally:
            await asyncio.to_thread(self.watcher.stop)
            self.queue.close()
            await self.signals.close()

    def _saw(self, resource: Resource, change: str | None, raw: Raw) -> None:
        self.metrics.events.inc()
        self.memory.saw(resource, change, raw)

    def _watched(self, key: Key, asked: bool) -> None:
        self.queue.add(key, Lane.ASKED if asked else Lane.NEWS)

    def _wake(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.queue.add(key)

    async def _until_kopf_ends(self) -> None:
        await self._ended
        raise OperatorEndedError("kopf has ended")

    def _kopf_ended(self, error: BaseException | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(OperatorEndedError(f"kopf has died: {error!r}"))


@contextlib.asynccontextmanager
async def operator(options: Options, fence: Fence) -> AsyncIterator[Operator]:
    """Opens the clients for the length of the block; to the apiserver it writes while ``fence`` is open."""
    configuration = await load_configuration(str(options.kubeconfig) if options.kubeconfig else None)
    metrics = Metrics()
    async with (
        KubeClient(configuration, observer=metrics.called, before_write=fence.check) as kube,
        TritonClient() as triton,
        PrometheusClient() as prometheus,
        ProbeClient() as probes,
        ActivatorClient() as activators,
        QualityClient() as quality,
    ):
        yield Operator(options, kube, triton, prometheus, probes, metrics, activators, quality)


async def run(options: Options, stop: asyncio.Event) -> None:
    """Until ``stop`` is set. Raises what the operator died of."""
    fence = Fence()
    async with (
        operator(options, fence) as running,
        serving(metrics_app(running.metrics.registry), options.metrics_port) as metrics_port,
        serving(health_app(running.health), options.health_port) as health_port,
    ):
        log.info("operator starts", metrics_port=metrics_port, health_port=health_port, workers=options.workers,
                 namespaces=options.namespaces or "all")
        work = asyncio.create_task(_work(running, options, fence), name="operator")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not work.done():
            log.info("operator stops")
            work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.result()


async def _work(running: Operator, options: Options, fence: Fence) -> None:
    """Raises what the operator died of; :class:`LeadershipLostError` among it, after which another one works."""
    async with lease_thread(options, fence, running.metrics.called) as lease:
        running.metrics.gauge("enginewright_leader", "1 while this replica leads, 0 while it stands by.",
                              lambda: lease.leads)
        with running.health.standing_by():
            await lease.won()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(lease.lost(), name="lease")
                group.create_task(running.run(), name="work")
        except* LeadershipLostError as lost:
            raise lost.exceptions[0] from None


def lease_thread(options: Options, fence: Fence, observer: CallObserver | None = None) -> LeaseThread:
    kubeconfig = str(options.kubeconfig) if options.kubeconfig else None
    namespaces = options.namespaces or (own_namespace(kubeconfig),)
    namespace, name = options.lease or (namespaces[0], LEASE_NAME)
    me, terms = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}", Terms()

    @contextlib.asynccontextmanager
    async def client() -> AsyncIterator[KubeClient]:
        configuration = await load_configuration(kubeconfig)
        async with KubeClient(configuration, deadline=terms.call_deadline, observer=observer) as kube:
            yield kube

    return LeaseThread(client, lambda kube: Leadership(kube, namespace, name, me, fence=fence, terms=terms))
