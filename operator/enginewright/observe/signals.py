"""Queue depth, once a second for each object that wants it, and a wake-up as soon as it asks for other replicas.

One task an object. A round asks all its ready replicas at once, but those that have failed before are asked less often
(see :class:`Pauses`), and gives up on the slow ones; what is missing is counted as missing, never as zero. Between
passes the pure scaling rule runs on every new sample, so that a pass runs when there is something to do and a quiet
queue costs the apiserver nothing. While no request comes to a model with its fewest replicas, some seconds change
nothing in what the rule asks for, and it rests.

All replicas together are asked :data:`READINGS` times a second at most, or half as often where a measured capacity
judges them, so that passes have their time: with more of them every object waits longer, each in the same measure.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from enginewright.clients.activator import ActivatorClient
from enginewright.clients.errors import ClientError
from enginewright.clients.prometheus import PrometheusClient
from enginewright.clients.signals import ReplicaMetrics
from enginewright.clients.triton import TritonClient
from enginewright.core.comparison import Question, compare
from enginewright.core.reasons import Reason
from enginewright.core.scaling import Capacity, ScaleDecision, ScaleLimits, decide_replicas
from enginewright.core.scaling.queue import awaits_another
from enginewright.core.scaling.shown import Shown
from enginewright.core.servers import Server
from enginewright.core.servers.triton import TRITON
from enginewright.core.servers.vllm import VLLM
from enginewright.core.signals import Sample, SignalWindow
from enginewright.observe.arrivals import Growth
from enginewright.observe.bell import Bell
from enginewright.observe.keys import Key
from enginewright.observe.power import Drawn
from enginewright.observe.prober import Prober
from enginewright.observe.sizes import gauges
from enginewright.observe.together import together
from enginewright.observe.window import Window

PERIOD: Final = 1.0
# Of the period without many replicas, after which replicas are asked again where one look alone would scale up. So a
# queue is answered within a second and a half, wherever in a period it begins; a spike that is over sooner is none.
AGAIN: Final = 0.4
# Seconds: rounds begin at whole multiples of it. Those of a moment are then begun, and their answers read, in a few
# turns of the event loop, each of which costs as much as to parse a page.
TICK: Final = 0.05
# Replicas a second that queue depth judges. More would leave passes too little: a breach among 1,000 was answered later
# then (docs/benchmarks/scale.md). A reading that a measured capacity judges costs as much as so many others.
READINGS: Final = 1000.0
JUDGED: Final = 2
# Seconds between two passes over an object that only show other figures; and how many of these a second there may be.
# Each writes status, which costs the apiserver some 12 ms of CPU.
REFRESH: Final = 10.0
REFRESHES: Final = 10.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Target:
    """What to scrape for one object: ``replicas`` maps ready pods to their addresses, ``current`` is how many
    replicas are asked for. Without ``limits`` samples are only kept. ``prometheus`` is the server's URL, empty for
    direct scraping; ``matchers`` narrow its query. ``question`` is the analysis under way, for which ``revisions`` maps
    the same pods to theirs. ``starting`` are the moments, on the monotonic clock, at which replicas that are not ready
    were made; ``capacity`` is what one replica was measured to do. ``activators`` maps pods that hold requests to their
    addresses. ``metered`` says that replicas have whole GPUs, whose counters are theirs; ``server`` is what they
    run. ``shown`` is what status says of the moment."""

    replicas: Mapping[str, str]
    current: int
    revisions: Mapping[str, str] = field(default_factory=dict)
    question: Question | None = None
    limits: ScaleLimits | None = None
    capacity: Capacity | None = None
    starting: tuple[float, ...] = ()
    activators: Mapping[str, str] = field(default_factory=dict)
    prometheus: str = ""
    matchers: str = ""
    metered: bool = False
    server: Server = TRITON
    shown: Shown = field(default_factory=Shown)


class _Watched:
    def __init__(self, target: Target, started: float) -> None:
        self.target = target
        self.window = Window(started)
        self.reason: Reason | None = None
        self.message = ""
        self.judged = -math.inf
        # The decision that holds for as long as nothing comes.
        self.rests: ScaleDecision | None = None
        self.told = -math.inf
        self.verdict = ("", "")
        self.trouble: type[ClientError] | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.hurry = Bell()
        # Whether there is an analysis to send probes for.
        self.asked = asyncio.Event()


def _read(target: Target) -> int:
    """How many replicas the operator reads itself, by what a reading costs."""
    if target.prometheus:
        return 0
    return len(target.replicas) * (1 if target.capacity is None else JUDGED)


class Signals:
    """``wake`` puts a key into the work queue, ``tell`` one where only status is out of date; ``scraped`` gets the
    source and whether each replica answered; without ``prober`` no requests are made, and without ``activators`` none
    is asked. ``readings`` is how many replicas are asked in a second at most where queue depth judges them; ``period``
    is seconds, as long as they are no more."""

    def __init__(
        self, triton: TritonClient, prometheus: PrometheusClient, *, wake: Callable[[Key], None],
        clock: Callable[[], float], scraped: Callable[[str, bool], None], period: float = PERIOD,
        prober: Prober | None = None, activators: ActivatorClient | None = None, readings: float = READINGS,
        tell: Callable[[Key], None] = lambda _: None,
    ) -> None:
        self._triton = triton
        self._prometheus = prometheus
        self._wake = wake
        self._clock = clock
        self._scraped = scraped
        self._period = period
        self._prober = prober
        self._activators = activators
        self._readings = readings
        self._tell = tell
        self._watched: dict[Key, _Watched] = {}
        self._cost = 0

    @property
    def period(self) -> float:
        """Seconds from one look at an object's replicas to the next."""
        return max(self._period, self._cost / self._readings)

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, key: Key, target: Target) -> None:
        """Starts scraping, or changes what is scraped; the window goes on."""
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = _Watched(target, self._clock())
            watched.tasks = [asyncio.create_task(self._scrape_on(key, watched), name=f"scraper of {key}")]
            if self._prober is not None:
                watched.tasks.append(asyncio.create_task(self._probe_on(key, watched), name=f"prober of {key}"))
            before = 0
        else:
            before = _read(watched.target)
        self._cost += _read(target) - before
        if watched.target.replicas and not target.replicas:
            # The next round waits at the activator for the first request: it is not to wait for its turn before.
            watched.hurry.ring()
        watched.target, watched.rests = target, None
        (watched.asked.set if target.question is not None else watched.asked.clear)()
        watched.window.ask(self._clock(), target.current)
        watched.window.analyse(target.question.key if target.question else "")
        watched.window.serve(target.revisions.values())

    async def forget(self, key: Key) -> None:
        """Stops scraping and drops the window."""
        watched = self._watched.pop(key, None)
        if watched is None:
            return
        self._cost -= _read(watched.target)
        for task in watched.tasks:
            task.cancel()
        # Not `await task`: its cancellation could not be distinguished from our own, and a pass that swallows that
        # never ends.
        await asyncio.wait(watched.tasks)

    async def close(self) -> None:
        for key in list(self._watched):
            await self.forget(key)

    def window(self, key: Key) -> SignalWindow | None:
        watched = self._watched.get(key)
        return None if watched is None else watched.window.view()

    def drawn(self) -> Mapping[Key, Drawn]:
        """What the GPUs of each object's replicas do, where that is known."""
        now = self._clock()
        return {key: watched.window.power.drawn(now) for key, watched in self._watched.items()
                if watched.target.metered}

    def recommend(self, key: Key, replicas: int) -> None:
        """Remembers what a pass wished for."""
        watched = self._watched.get(key)
        if watched is not None:
            watched.window.recommend(self._clock(), replicas)

    async def _scrape_on(self, key: Key, watched: _Watched) -> None:
        async def once() -> float:
            await self.round(key, watched.target, watched.window)
            return self._judge(key, watched)

        await self._again_and_again(key, once, watched.hurry)

    async def _probe_on(self, key: Key, watched: _Watched) -> None:
        """Beside the scraper: an answer that is long in coming must not make a queue depth old."""

        async def once() -> float:
            await watched.asked.wait()
            target = watched.target
            if self._prober is not None and target.question is not None:
                await self._prober.round(target.question, target.replicas, target.revisions, watched.window)
            return self._period

        await self._again_and_again(key, once, Bell())

    async def _again_and_again(self, key: Key, once: Callable[[], Awaitable[float]], hurry: Bell) -> None:
        """``once`` returns seconds from the beginning of its round to that of the next; ``hurry`` begins the next round
        before its time."""
        due = self._clock()
        while True:
            pause = self.period
            try:
                pause = await once()
            except Exception:
                # A defect in one round must not blind the scaler for good: the next sample is a second away.
                log.exception("scrape round failed", object=str(key))
            # From due time to due time, so that rounds do not drift; rounds that were missed are not made up for.
            now = self._clock()
            due = max(due + pause, now)
            if await hurry.within(TICK * math.ceil(due / TICK) - now):
                due = self._clock()

    async def round(self, key: Key, target: Target, window: Window) -> None:
        """One sample. ``time`` is when the round began: a slow answer is an old one."""
        began = self._clock()
        grown, held, p99 = Growth(), None, None
        running: Mapping[str, float] = {}
        caches: Mapping[str, float] = {}
        if target.prometheus:
            pending = await self._ask_prometheus(key, target, window)
        else:
            metrics, held = await self._ask(target, window)
            pending = window.pending(metrics, target.capacity)
            p99 = max((answer.p99 for answer in metrics.values() if answer.p99 is not None), default=None)
            running, caches = gauges(metrics)
            grown = window.arrived(began, metrics, target.replicas, target.capacity)
            if target.metered:
                window.power.update(began, metrics, target.replicas)
            if target.question is not None:
                window.count(began, metrics, target.revisions, target.question.limits.percentile / 100)
        missing = len(target.replicas.keys() - pending.keys())
        window.add(Sample(time=began, ready=len(target.replicas), pending=pending, missing=missing,
                          arrived=grown.arrived, inflight=grown.executing, served=grown.served, spent=grown.spent,
                          starting=tuple(began - made for made in target.starting), held=held, p99=p99,
                          rejected=grown.rejected, hits=grown.hits, misses=grown.misses, running=running,
                          caches=caches, inferences=grown.inferences))

    def _judge(self, key: Key, watched: _Watched) -> float:
        """Seconds until the next round."""
        target = watched.target
        if target.question is not None:
            verdict = (target.question.key, compare(watched.window.view(), target.question).verdict)
            if verdict != watched.verdict and verdict[1] != "open":
                self._wake(key)
            watched.verdict = verdict
        if target.limits is None:
            return self.period
        now = self._clock()
        if watched.rests is not None and watched.window.still and now - watched.judged < REFRESH:
            watched.window.recommend(now, *watched.rests.wishes)
            return self.period
        window = watched.window.view()
        decision = decide_replicas(window, target.current, target.limits, now, target.capacity)
        watched.window.recommend(now, *decision.wishes)
        # What a measured capacity decides counts samples as seconds, and Prometheus has no newer figure so soon.
        alone = target.capacity is None and not target.prometheus
        again = alone and awaits_another(window, target.current, target.limits, now)
        if decision.replicas != target.current:
            self._wake(key)
            watched.message = decision.message
        elif again:
            # A pass that only told of this look would stand before the one that scales after the next.
            return self._period * AGAIN
        elif decision.reason != watched.reason or self._outdated(watched, decision, window, now):
            self._tell(key)
            watched.told, watched.message = now, decision.message
        watched.reason = decision.reason
        fewest = 0 < target.limits.min_replicas == target.current == decision.replicas
        watched.judged, watched.rests = now, decision if fewest and watched.window.still else None
        return self._period * AGAIN if again else self.period

    def _outdated(self, watched: _Watched, decision: ScaleDecision, window: SignalWindow, now: float) -> bool:
        """Whether status is due to show other figures or words."""
        if now - watched.told < max(REFRESH, len(self) / REFRESHES):
            return False
        return decision.message != watched.message or watched.target.shown.outdated(window, decision.queue_depth, now)

    async def _ask(self, target: Target, window: Window) -> tuple[Mapping[str, ReplicaMetrics], float | None]:
        """Replicas and activators at once. Most models have one replica and no activator: tasks for these would cost as
        much as to parse what the replica says."""
        if self._activators is None or not target.activators:
            return await self._ask_replicas(target, window), None
        return await asyncio.gather(self._ask_replicas(target, window),
                                    self._ask_activators(self._activators, target, window))

    async def _ask_replicas(self, target: Target, window: Window) -> Mapping[str, ReplicaMetrics]:
        """Of those that may be asked. Each is remembered with its address: another one may have its name."""
        now, found = self._clock(), {}
        places = {f"{name} {address}": name for name, address in target.replicas.items()}
        due = window.replicas.due(places, now)
        scrape = self._triton.scrape_vllm if target.server is VLLM else self._triton.scrape

        async def asked(one: str) -> ReplicaMetrics | ClientError:
            try:
                return await scrape(target.replicas[places[one]])
            except ClientError as error:
                return error

        answers = await together(*map(asked, due))
        for one, answer in zip(due, answers, strict=True):
            answered = isinstance(answer, ReplicaMetrics)
            window.replicas.note(one, answered, now)
            self._scraped("direct", answered)
            if isinstance(answer, ReplicaMetrics):
                found[places[one]] = answer
        return found

    async def _ask_activators(self, activators: ActivatorClient, target: Target, window: Window) -> float | None:
        """What they hold in all; None where none is known to hold anything and one does not answer, which may. While no
        replica is ready this takes a whole period, and ends as soon as a request is held: a request that waits for a
        cold start need not wait for the next round as well."""
        wait = 0.0 if target.replicas else self._period
        due = window.activators.due(set(target.activators.values()), self._clock())
        asked = {asyncio.create_task(self._held(activators, one, wait, window)) for one in due}
        answers: list[float] = []
        try:
            while asked and not (wait and any(answers)):
                done, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                answers += [answer for task in done if (answer := task.result()) is not None]
        finally:
            for task in asked:
                task.cancel()
        known = len(answers) == len(set(target.activators.values()))
        return sum(answers) if known or any(answers) else None

    async def _held(self, activators: ActivatorClient, address: str, wait: float, window: Window) -> float | None:
        now = self._clock()
        try:
            held = await activators.held(address, wait)
        except ClientError:
            held = None
        window.activators.note(address, held is not None, now)
        self._scraped("activator", held is not None)
        return held

    def _say_of_prometheus(self, key: Key, error: ClientError | None) -> None:
        """Once, and not each second for as long as it lasts: by its kind, since texts of libraries have addresses."""
        watched = self._watched.get(key)
        if watched is None or watched.trouble is (kind := type(error) if error else None):
            return
        watched.trouble = kind
        if error:
            log.warning("prometheus gave no queue depth", object=str(key), error=str(error))
        else:
            log.info("prometheus gives queue depth again", object=str(key))

    async def _ask_prometheus(self, key: Key, target: Target, window: Window) -> Mapping[str, float]:
        now, source = self._clock(), target.prometheus
        if not window.prometheus.due({source}, now):
            return {}
        pending: Mapping[str, float] | None = None
        trouble: ClientError | None = None
        try:
            pending = await self._prometheus.pending(source, key.namespace, key.name, target.matchers,
                                                     target.server.metrics.pending)
        except ClientError as error:
            trouble = error
        window.prometheus.note(source, trouble is None, now)
        self._scraped("prometheus", trouble is None)
        self._say_of_prometheus(key, trouble)
        # Pods that are gone stay in Prometheus for a while; those that are not ready yet are not asked.
        return {pod: value for pod, value in (pending or {}).items() if pod in target.replicas}
