"""One replica of a language model: continuous batching, as vLLM does it.

Each step makes one token for every request that is being answered, and reads so many tokens of prompts as the step has
room for (vLLM's chunked prefill: docs.vllm.ai, "Optimization and Tuning"). A request is taken up where there is a place
and room in the KV cache for its prompt. The last part of a prompt brings the first token. A step takes as long as the
weights take to be read, more for each request in it, and for each token of a prompt.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Self

from enginewright.clients.signals import ReplicaMetrics
from enginewright.core.signals import Spent
from enginewright_simulation.server import Ledger

MODEL = "m"


class Asked(float):
    """When a request came, in seconds; with its tokens."""

    __slots__ = ("read", "written")
    read: int
    written: int

    @classmethod
    def at(cls, time: float, read: int, written: int) -> Self:
        """``written`` tokens, at least one, are answered to ``read``."""
        made = cls(time)
        made.read, made.written = max(1, read), max(1, written)
        return made


def retimed(asked: float, time: float) -> float:
    """The same request at another time; of a plain time, that other one."""
    return Asked.at(time, asked.read, asked.written) if isinstance(asked, Asked) else time


def _asked(came: float) -> Asked:
    """Who gives no tokens asks for one, with one."""
    return came if isinstance(came, Asked) else Asked.at(came, 1, 1)


@dataclass(frozen=True, kw_only=True)
class TokenService:
    """``step_seconds`` a step takes alone, ``request_seconds`` more for each request that it makes a token for, and
    ``input_seconds`` for each token of a prompt, of which one step reads ``step_tokens`` less one for each of those
    requests. At most ``at_once`` requests are answered at once, with a KV cache for ``cache_tokens``."""

    step_seconds: float
    request_seconds: float
    input_seconds: float
    at_once: int = 256
    step_tokens: int = 2048
    cache_tokens: float = math.inf

    def step(self, writing: int, read: int) -> float:
        return self.step_seconds + writing * self.request_seconds + read * self.input_seconds


@dataclass
class _Reading:
    asked: Asked
    left: int


@dataclass
class _Counted:
    """Since the replica is there."""

    answered: float = 0.0
    read: float = 0.0
    written: float = 0.0


@dataclass(order=True)
class _Writing:
    """Its last token comes with step ``last``."""

    last: int
    number: int
    asked: Asked = field(compare=False)
    first: float = field(compare=False)


class TokenReplica:
    """``created``, ``ready`` and ``stopped`` (when it gets no more requests) are times in seconds; so are those in
    ``queue``, which are :class:`Asked`."""

    def __init__(self, name: str, service: TokenService, ledger: Ledger, created: float, ready: float) -> None:
        self.name = name
        self.service = service
        self.ledger = ledger
        self.created = created
        self.ready = ready
        self.stopped = ready
        self.queue: deque[float] = deque()
        self.clock = ready
        self._steps = 0
        self._numbers = itertools.count()
        self._reading: deque[_Reading] = deque()
        self._writing: list[_Writing] = []
        self._cached = 0
        self._counted = _Counted()

    def advance(self, until: float) -> None:
        """All steps that begin by ``until``; the queue holds every request that came by then."""
        while self._reading or self._writing or self.queue:
            start = self.clock
            if not (self._reading or self._writing):
                start = max(start, self.queue[0])
            if start > until:
                return
            self._step(start)

    def spent(self, now: float) -> Spent:
        return Spent(seconds=now, answered=self._counted.answered)

    def executing(self, now: float) -> int:
        """Requests being answered."""
        return len(self._reading) + len(self._writing)

    def drained_at(self) -> float:
        """When a replica that was stopped has given its last answer; the queue must be empty."""
        self.advance(math.inf)
        return max(self.stopped, self.clock)

    def metrics(self) -> ReplicaMetrics:
        counted = self._counted
        used = self._cached / self.service.cache_tokens
        return ReplicaMetrics(pending={MODEL: float(len(self.queue))}, successes={MODEL: counted.answered},
                              running=float(self.executing(0.0)), prompt_tokens=counted.read,
                              generated_tokens=counted.written, cache_used=min(1.0, used))

    def _step(self, start: float) -> None:
        self._admit(start)
        writing = len(self._writing)
        read, done = self._read(max(0, self.service.step_tokens - writing))
        self.clock = start + self.service.step(writing, read)
        self._steps += 1
        self._counted.written += writing + len(done)
        self._cached += writing + len(done)
        while self._writing and self._writing[0].last == self._steps:
            ended = heapq.heappop(self._writing)
            self._answered(ended.asked, ended.first)
        for asked in done:
            self._counted.read += asked.read
            if asked.written == 1:
                self._answered(asked, self.clock)
                continue
            heapq.heappush(self._writing, _Writing(self._steps + asked.written - 1, next(self._numbers), asked,
                                                   self.clock))

    def _admit(self, now: float) -> None:
        """One request at least, however small the cache."""
        while self.queue and self.queue[0] <= now and self.executing(now) < self.service.at_once:
            asked = _asked(self.queue[0])
            if self.executing(now) and self._cached + asked.read > self.service.cache_tokens:
                return
            self.queue.popleft()
            self._cached += asked.read
            self._reading.append(_Reading(asked, asked.read))

    def _read(self, most: int) -> tuple[int, list[Asked]]:
        """Tokens of prompts, at least one where there is a prompt, and the requests whose prompts are read now."""
        left, done = max(1, most), []
        before = left
        while self._reading and left:
            first = self._reading[0]
            taken = min(left, first.left)
            left, first.left = left - taken, first.left - taken
            if not first.left:
                done.append(self._reading.popleft().asked)
        return before - left, done

    def _answered(self, asked: Asked, first: float) -> None:
        self._cached -= asked.read + asked.written
        self._counted.answered += 1
        waited = first - asked
        each = (self.clock - first) / max(1, asked.written - 1)
        self.ledger.latencies.append(waited)
        if waited > self.ledger.slo or each > self.ledger.tpot:
            self.ledger.late.append(asked)
