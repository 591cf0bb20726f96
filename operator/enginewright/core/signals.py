"""What replicas said of themselves, of their load and of their answers, as a pass sees it. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from enginewright.core.tokens import Tokens

# Seconds; sums of counters are off by less.
ROUNDING = 1e-6
# Seconds; status shows what came within it.
MINUTE: Final = 60.0


# Most figures of most samples are empty, and an operator keeps half a million samples of a thousand models.
_NOTHING: Final = MappingProxyType[str, Any]({})


def nothing() -> Mapping[str, Any]:
    """The one empty mapping that all samples share."""
    return _NOTHING


@dataclass(frozen=True, slots=True)
class Work:
    """``served`` requests in ``seconds`` of one replica, or of several added up."""

    seconds: float = 0.0
    served: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.seconds + other.seconds, self.served + other.served)


@dataclass(frozen=True, slots=True)
class Spent:
    """What ``answered`` requests took, in ``seconds`` of one replica, or of several added up: all of them together
    ``waited`` seconds in the queue and were ``computed`` for seconds, in so many ``executions`` of a batch each."""

    seconds: float = 0.0
    answered: float = 0.0
    waited: float = 0.0
    computed: float = 0.0
    executions: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.seconds + other.seconds, self.answered + other.answered, self.waited + other.waited,
                     self.computed + other.computed, self.executions + other.executions)

    def since(self, before: Spent) -> Spent | None:
        """Of two readings of counters; None where one fell: they restarted in between."""
        grown = Spent(self.seconds - before.seconds, self.answered - before.answered, self.waited - before.waited,
                      self.computed - before.computed, self.executions - before.executions)
        least = min(grown.seconds, grown.answered, grown.waited, grown.computed, grown.executions)
        return grown if least >= -ROUNDING else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One scrape round over all ready replicas at ``time`` (seconds on a monotonic clock). ``pending`` maps a pod
    that answered to its queued requests; ``missing`` counts ready replicas that did not answer in time. ``arrived`` is
    how many requests came since the sample before, over all replicas, None when that is unknown (a first scrape, a
    counter that was reset, a replica that did not answer); ``inflight`` those in execution, None when unknown.
    ``starting`` has the age in seconds of each replica that is not ready yet. ``served`` maps a pod to what it answered
    since the sample before, where that is known, and ``spent`` to what that took; ``full`` those that were never
    idle meanwhile to what they did. ``calm`` is what all those spent that had hardly a queue. ``queued`` counts
    arrivals since the sample before that found at least 1, 2, 4, … requests queued. ``held`` are requests that the
    activator holds, None where there is none or it does not answer. ``p99`` is the servers' own of the last minute, in
    milliseconds, of the slowest replica; None where they export none. ``rejected`` counts requests that waited for too
    long since the sample before, which are among those that ``arrived`` and not among those ``served``. ``hits`` are
    requests that response caches answered since then, among neither, and ``misses`` those that they did not.
    ``inferences`` are batch elements that replicas computed since the sample before, of a language model tokens of
    answers; None where no replica says. ``occupied_at`` is of an old sample, which is several together and has no
    ``pending`` or ``running`` any more: the time of the last of them in which a request waited, ran or was held; None
    where none did.

    Of a language model that was measured, ``pending``, ``arrived``, ``served`` and ``full`` count requests of the size
    that the build measured: work, in other words (``scaling/work.py``). ``running`` maps a pod to the requests that it
    is answering, and ``caches`` to the share of its KV cache in use, 0 to 1; empty where the server tells neither."""

    time: float
    ready: int
    pending: Mapping[str, float] = field(default_factory=nothing)
    missing: int = 0
    arrived: float | None = None
    inflight: float | None = None
    starting: tuple[float, ...] = ()
    served: Mapping[str, float] = field(default_factory=nothing)
    full: Mapping[str, Work] = field(default_factory=nothing)
    spent: Mapping[str, Spent] = field(default_factory=nothing)
    calm: Spent = Spent()
    queued: tuple[float, ...] = ()
    held: float | None = None
    p99: float | None = None
    rejected: float = 0.0
    hits: float = 0.0
    misses: float = 0.0
    running: Mapping[str, float] = field(default_factory=nothing)
    caches: Mapping[str, float] = field(default_factory=nothing)
    inferences: float | None = None
    occupied_at: float | None = None

    @property
    def busy(self) -> bool:
        """Whether a request waited, ran or was held, whenever it came: an answer may take longer than samples are kept
        as they are."""
        return (self.occupied_at is not None or bool(self.held) or any(self.pending.values())
                or any(self.running.values()))


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What replicas did between two scrapes: ``requests`` answered, ``failed`` by a fault of the engine, ``rejected``
    because they waited in the queue for too long, ``busy``
    microseconds that the answered ones took from arrival to answer, ``queued`` microseconds of them in the queue.
    ``replicas`` is how many replicas' scrapes were added up. ``p99`` is the server's own, in milliseconds, the worst of
    the replicas; None where it exports none. ``tokens`` are those of a language model."""

    requests: float = 0.0
    failed: float = 0.0
    busy: float = 0.0
    queued: float = 0.0
    replicas: int = 0
    p99: float | None = None
    rejected: float = 0.0
    tokens: Tokens | None = None

    def __add__(self, other: Traffic) -> Traffic:
        tails = [one for one in (self.p99, other.p99) if one is not None]
        counted = [one for one in (self.tokens, other.tokens) if one is not None]
        return Traffic(
            requests=self.requests + other.requests, failed=self.failed + other.failed, busy=self.busy + other.busy,
            queued=self.queued + other.queued, replicas=self.replicas + other.replicas,
            p99=max(tails, default=None), rejected=self.rejected + other.rejected,
            tokens=sum(counted[1:], counted[0]) if counted else None)


@dataclass(frozen=True, kw_only=True)
class Round:
    """One scrape round during an analysis: traffic by revision since the round before. ``time`` is on the monotonic
    clock."""

    time: float
    traffic: Mapping[str, Traffic]


@dataclass(frozen=True, slots=True)
class Reading:
    """Of one ready replica during an analysis. ``heard`` is when it last answered a scrape, or was first asked, on the
    monotonic clock; ``counted`` says that the rounds have what it did since: a first scrape only sets the base."""

    pod: str
    revision: str
    heard: float
    counted: bool


@dataclass(frozen=True, kw_only=True)
class ProbeResults:
    """Inputs that were sent to one replica of each of two revisions. ``pairs`` counts those that the stable revision
    answered, ``flawed`` those of them that the candidate did not answer, or with other shapes or numbers that are not
    finite, ``flaw`` the last such; ``similarities`` are cosines between both answers, with ``single`` also of outputs
    of one number, by their error. ``problem`` says why there are no probes."""

    pairs: int = 0
    flawed: int = 0
    flaw: str = ""
    similarities: tuple[float, ...] = ()
    single: bool = False
    problem: str = ""

    @property
    def median(self) -> float | None:
        return statistics.median(self.similarities) if self.similarities else None


@dataclass(frozen=True, kw_only=True)
class SignalWindow:
    """Samples oldest first, and the recommendations made from them (time, replicas), for stabilisation. ``asked`` says
    since when how many replicas were asked for, oldest first. ``rounds``, ``readings`` and
    ``probes`` are those of the analysis that ``analysis`` names; ``begun_again`` is how often its oldest rounds were
    forgotten, so that what is added up of them began again. Kept by the shell; lost at a restart, which only makes
    scale-down wait for a full window and an analysis start again. In ``notes`` what was added up of ``rounds`` is left
    for the next look; it saves time and decides nothing."""

    started: float
    samples: tuple[Sample, ...] = ()
    recommendations: tuple[tuple[float, int], ...] = ()
    asked: tuple[tuple[float, int], ...] = ()
    analysis: str = ""
    rounds: tuple[Round, ...] = ()
    readings: tuple[Reading, ...] = ()
    begun_again: int = 0
    probes: ProbeResults = ProbeResults()
    notes: dict[type, object] = field(default_factory=dict, compare=False, repr=False)


def of_last_minute(samples: Iterable[Sample], now: float) -> list[Sample]:
    """Those of the minute before ``now``, on their clock, in their order."""
    return [one for one in samples if now - one.time <= MINUTE]
