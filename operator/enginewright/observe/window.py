"""What the scraper remembers of one object: bounded, and made into the core's plain ``SignalWindow`` on demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from enginewright.clients.signals import ReplicaMetrics
from enginewright.core.probe import Match, similarities
from enginewright.core.scaling import Capacity
from enginewright.core.scaling.arrivals import ROUNDING
from enginewright.core.scaling.latency import calm
from enginewright.core.scaling.lost import added, found_queued
from enginewright.core.scaling.seen import never_idle
from enginewright.core.signals import (
    ProbeResults,
    Reading,
    Round,
    Sample,
    SignalWindow,
    Spent,
    Traffic,
    Work,
    nothing,
)
from enginewright.core.tokens import Tokens
from enginewright.observe.arrivals import Arrivals, Growth
from enginewright.observe.pauses import Pauses
from enginewright.observe.power import Power
from enginewright.observe.sizes import Sizes, in_work

# Samples that are kept as they are: smoothing and bursts look at these.
SAMPLES: Final = 120
# Older ones are added up over so many seconds, and kept for so many: scaling down looks at how the load was, and a last
# replica may have to see an hour without a request before it goes (autoscaling.scaleToZeroAfterSeconds).
OLD_SECONDS: Final = 10.0
OLD_KEPT: Final = 3600.0
# Seconds that numbers of replicas are kept for: the longest period of a scaling policy.
ASKED: Final = 1800.0
# Half an hour of an analysis; of each round only sums by revision are kept. Many are forgotten at once: what is left is
# added up again then, which one a second would cost every second. It is longer than any patience.
ROUNDS: Final = 1800
FORGOTTEN: Final = 200
SIMILARITIES: Final = 64
# Fewer live requests than these in the last seconds are too few to wait for.
RECENT: Final = 10
LIVE_REQUESTS: Final = 20
# 99.9 / 100 is not 0.999.
QUANTILE_DIGITS: Final = 9
# So many probes in a row that the stable revision does not answer are a problem; fewer may be one stall.
UNANSWERED: Final = 5


class Window:
    """``started`` is seconds on the monotonic clock of all times here. ``replicas``, ``activators`` and ``prometheus``
    say which of them may be asked."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._samples: deque[Sample] = deque()
        self._old: deque[Sample] = deque()
        self._recommended: dict[int, float] = {}
        self._asked: deque[tuple[float, int]] = deque()
        self._arrivals = Arrivals()
        self._sizes = Sizes()
        self._served: set[str] = set()
        self._learning = True
        self._counters = Counters()
        self._readings: dict[str, Reading] = {}
        self._analysis = ""
        self._rounds: list[Round] = []
        self._begun_again = 0
        self._notes: dict[type, object] = {}
        self._probes = ProbeResults()
        self._matches: deque[Match] = deque(maxlen=SIMILARITIES)
        self._probed: deque[float] = deque(maxlen=1000)
        self._unanswered = 0
        self._failed = 0
        self.power = Power()
        self.replicas, self.prometheus = Pauses(), Pauses()
        # Requests are waiting there for the first replica.
        self.activators = Pauses(longest=5.0)

    def add(self, sample: Sample) -> None:
        full, quiet = sample.full, sample.calm
        if self._samples and self._learning:
            full, quiet = never_idle(self._samples, sample), calm(self._samples[-1], sample)
        sample = replace(sample, queued=found_queued(sample), full=full or nothing(), calm=quiet,
                         spent=sample.spent or nothing(), running=sample.running or nothing(),
                         caches=sample.caches or nothing())
        self._samples.append(sample)
        if len(self._samples) > SAMPLES:
            self._age(self._samples.popleft())

    def _age(self, sample: Sample) -> None:
        """Of an old sample only arrivals count, what was seen of replicas, and whether they had anything to do. Its
        queue is dropped, as if none had answered."""
        occupied_at = sample.time if sample.busy else None
        before = self._old[-2].time if len(self._old) > 1 else self._started
        more: dict[str, Any] = {}
        if self._old and sample.time - before <= OLD_SECONDS * (1 + ROUNDING):
            last = self._old.pop()
            occupied_at = last.occupied_at if occupied_at is None else occupied_at
            known = last.arrived is not None and sample.arrived is not None
            full = {pod: last.full.get(pod, Work()) + sample.full.get(pod, Work())
                    for pod in (*last.full, *sample.full)}
            more = {"arrived": (last.arrived or 0.0) + (sample.arrived or 0.0) if known else None,
                    "full": full or nothing(), "calm": last.calm + sample.calm,
                    "queued": added(last.queued, sample.queued), "hits": last.hits + sample.hits}
        self._old.append(replace(sample, pending=nothing(), served=nothing(), spent=nothing(), starting=(),
                                 running=nothing(), caches=nothing(), occupied_at=occupied_at, **more))
        # What a sample tells began with the one before, so the oldest only says when.
        while len(self._old) > 1 and self._old[1].time <= sample.time - OLD_KEPT:
            self._old.popleft()

    def serve(self, revisions: Iterable[str]) -> None:
        """The revisions of the replicas that are asked. What replicas were seen to do is forgotten with their revision;
        while there are two, whose replicas may differ, nothing is learnt of it."""
        now = set(revisions)
        self._learning = len(now) <= 1
        if len(now) != 1 or now == self._served:
            return
        if self._served:
            self._samples = deque(replace(one, full=nothing(), calm=Spent()) for one in self._samples)
            self._old = deque(replace(one, full=nothing(), calm=Spent()) for one in self._old)
        self._served = now

    def arrived(self, time: float, scraped: Mapping[str, ReplicaMetrics], pods: Iterable[str],
                capacity: Capacity | None = None) -> Growth:
        """Of one scrape round: see :class:`Arrivals`. Of a language model with a measured ``capacity``, in requests of
        the size that was measured."""
        grown = self._arrivals.update(time, scraped, pods)
        self._sizes.add(grown.tokens)
        if capacity is None or capacity.work is None:
            return grown
        return in_work(grown, capacity.work, self._sizes.mean(capacity.work))

    def pending(self, scraped: Mapping[str, ReplicaMetrics], capacity: Capacity | None = None) -> dict[str, float]:
        """Queued requests of each replica, in the same unit."""
        if capacity is None or capacity.work is None:
            return {pod: metrics.queued for pod, metrics in scraped.items()}
        size = self._sizes.mean(capacity.work)
        return {pod: size * metrics.queued for pod, metrics in scraped.items()}

    def recommend(self, time: float, *wishes: int) -> None:
        """Numbers of replicas. Stabilisation asks for the least and the most within a window, so of each value only the
        newest time counts: that bounds what is kept, however long the window is."""
        for replicas in wishes:
            self._recommended.pop(replicas, None)
            self._recommended[replicas] = time

    def ask(self, time: float, replicas: int) -> None:
        """So many replicas are asked for from now on."""
        if not self._asked or self._asked[-1][1] != replicas:
            self._asked.append((time, replicas))
        while len(self._asked) > 1 and self._asked[1][0] <= time - ASKED:
            self._asked.popleft()

    def analyse(self, key: str) -> None:
        """From now on rounds belong to the analysis ``key``; another one than before begins without any."""
        if key == self._analysis:
            return
        self._analysis = key
        self._counters = Counters()
        self._readings = {}
        self._rounds = []
        self._begun_again = 0
        self._notes = {}
        self._probes = ProbeResults()
        self._matches.clear()
        self._probed.clear()
        self._unanswered = 0
        self._failed = 0

    def count(self, time: float, scraped: Mapping[str, ReplicaMetrics], revisions: Mapping[str, str],
              quantile: float = 0.99) -> None:
        """One scrape round; ``revisions`` are those of all pods that are scraped."""
        grown = self._counters.update(scraped, revisions)
        if not self._analysis:
            return
        self._readings = {pod: self._reading(pod, revision, time, heard=pod in scraped, counted=pod in grown)
                          for pod, revision in revisions.items()}
        traffic: dict[str, Traffic] = {}
        for pod, growth in grown.items():
            seen = replace(growth, p99=scraped[pod].quantiles.get(round(quantile, QUANTILE_DIGITS)))
            revision = revisions[pod]
            traffic[revision] = traffic.get(revision, Traffic()) + seen
        if len(self._rounds) == ROUNDS:
            del self._rounds[:FORGOTTEN]
            self._begun_again += 1
        self._rounds.append(Round(time=time, traffic=traffic))

    def _reading(self, pod: str, revision: str, time: float, *, heard: bool, counted: bool) -> Reading:
        before = self._readings.get(pod)
        return Reading(pod, revision, heard=time if heard or before is None else before.heard,
                       counted=counted or (before is not None and before.counted))

    def probed(self, time: float, match: Match) -> None:
        """Both revisions were sent the same input."""
        seen = self._probes
        self._probed.append(time)
        self._unanswered = 0
        if match.similarity is not None or match.single:
            self._matches.append(match)
        self._probes = replace(
            seen,
            pairs=seen.pairs + 1,
            flawed=seen.flawed + bool(match.flaw),
            flaw=match.flaw or seen.flaw,
            similarities=similarities(self._matches),
            single=seen.single or bool(match.single),
            problem="",
        )

    def cannot_probe(self, problem: str) -> None:
        """It is one when it has happened :data:`UNANSWERED` times in a row."""
        self._unanswered += 1
        self._failed += 1
        if self._unanswered >= UNANSWERED:
            self._probes = replace(self._probes, problem=problem)

    def thin(self, revisions: Iterable[str], now: float) -> bool:
        """Whether one of ``revisions`` gets too few live requests to be compared by; our own do not count."""
        recent = [one for one in self._rounds if now - one.time <= RECENT]
        ours = sum(now - time <= RECENT for time in self._probed)
        live = (sum(one.traffic.get(name, Traffic()).requests for one in recent) - ours for name in revisions)
        return min(live, default=0.0) < LIVE_REQUESTS

    @property
    def tries(self) -> int:
        """Probes that were answered, and those that were not."""
        return self._probes.pairs + self._failed

    @property
    def probes(self) -> ProbeResults:
        return self._probes

    @property
    def still(self) -> bool:
        """Whether all replicas have answered, no request waits, and none has come since the sample before."""
        last = self._samples[-1] if self._samples else None
        return last is not None and last.arrived == 0.0 and not (
            last.missing or last.rejected or last.held or any(last.pending.values()))

    def view(self) -> SignalWindow:
        return SignalWindow(
            started=self._started,
            samples=(*self._old, *self._samples),
            recommendations=tuple((time, replicas) for replicas, time in self._recommended.items()),
            asked=tuple(self._asked),
            analysis=self._analysis,
            rounds=tuple(self._rounds),
            readings=tuple(self._readings.values()),
            begun_again=self._begun_again,
            probes=self._probes,
            notes=self._notes,
        )


@dataclass(frozen=True)
class _Totals:
    """What a server has counted since it started; of the ``timed`` requests not all were ``answered`` well."""

    timed: float
    answered: float
    failed: float
    busy: float
    queued: float
    rejected: float = 0.0
    tokens: Tokens | None = None

    @classmethod
    def of(cls, metrics: ReplicaMetrics) -> _Totals:
        return cls(metrics.timed, metrics.answered, metrics.broken, metrics.busy, metrics.queued_for, metrics.rejected,
                   metrics.tokens)

    def fell(self, before: _Totals) -> bool:
        """A counter that fell began at zero with its server, and the others with it."""
        return self.timed < before.timed or self.failed < before.failed or self.busy < before.busy

    def known_after(self, before: _Totals) -> _Totals:
        """See :meth:`Tokens.known_after`."""
        if self.tokens is None or before.tokens is None or self.fell(before):
            return self
        return replace(self, tokens=self.tokens.known_after(before.tokens))

    def since(self, before: _Totals) -> Traffic:
        """What was timed though it failed has taken as long as the others: Triton does not tell them apart."""
        start = _Totals(0.0, 0.0, 0.0, 0.0, 0.0) if self.fell(before) else before
        timed, answered = self.timed - start.timed, max(0.0, self.answered - start.answered)
        share = min(1.0, answered / timed) if timed else 1.0
        return Traffic(
            requests=answered,
            failed=self.failed - start.failed,
            busy=share * (self.busy - start.busy),
            queued=share * max(0.0, self.queued - start.queued),
            replicas=1,
            rejected=max(0.0, self.rejected - start.rejected),
            tokens=self.tokens and self.tokens.since(start.tokens or Tokens()),
        )


class Counters:
    """Turns counters that start at any value, and restart at zero with their server, into growth between scrapes."""

    def __init__(self) -> None:
        self._last: dict[str, _Totals] = {}

    def update(self, scraped: Mapping[str, ReplicaMetrics], pods: Iterable[str]) -> dict[str, Traffic]:
        """Growth by pod since its last scrape that succeeded, of those that were seen before; pods that are not among
        ``pods`` any more are forgotten."""
        grown = {}
        for pod, metrics in scraped.items():
            totals = _Totals.of(metrics)
            if pod in self._last:
                totals = totals.known_after(self._last[pod])
                grown[pod] = totals.since(self._last[pod])
            self._last[pod] = totals
        for pod in self._last.keys() - set(pods):
            del self._last[pod]
        return grown
