"""What both sources of the queue signal answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from enginewright.clients.errors import TransientError
from enginewright.core.tokens import Tokens


class NoSignalError(TransientError):
    """The source answered, but not with what was asked for, or with something too old."""


@dataclass(frozen=True, kw_only=True)
class GpuMetrics:
    """Of one GPU, for all that use it: ``joules`` since the server started, ``watts``, share of the time busy (0 to 1)
    and bytes in use now. None: not told."""

    joules: float | None = None
    watts: float | None = None
    utilisation: float | None = None
    memory_bytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReplicaMetrics:
    """Of one replica. ``pending`` maps a model to its queued requests; ``failures`` a reason (``BACKEND``,
    ``CANCELED``, ``OTHER``, ``REJECTED``) to the failed requests since the server started; ``successes`` a model to
    those that Triton counts as good; ``mistaken`` a fault (``backend``, ``request``) to those among them that failed.
    ``busy`` and ``queued_for`` are microseconds that the successes took, mistaken ones too, and, of these, queued;
    ``executions`` are batches that were executed, 0 where that is not told.
    ``quantiles`` maps 0.99 and the like to milliseconds, of the slowest model; empty where the server exports none.
    Requests that Triton refuses for their form (shape, name, batch size) are counted nowhere. ``inferences`` are batch
    elements that were answered; ``gpus`` has, by UUID, what the server's GPUs do. ``hits`` are requests that the
    server answered from its response cache, which nothing else here counts, and ``misses`` those that it looked for in
    vain.

    Of a language model: ``running`` requests, of which Triton has no gauge; tokens of prompts that were read, those of
    them that the prefix cache answered, and tokens that were generated; ``cache_used`` is the share of the KV cache in
    use (0 to 1), None where that is not told; ``tokens`` is what it counts of requests since it started."""

    pending: Mapping[str, float]
    failures: Mapping[str, float] = field(default_factory=dict)
    successes: Mapping[str, float] = field(default_factory=dict)
    mistaken: Mapping[str, float] = field(default_factory=dict)
    busy: float = 0.0
    queued_for: float = 0.0
    executions: float = 0.0
    quantiles: Mapping[float, float] = field(default_factory=dict)
    inferences: float = 0.0
    gpus: Mapping[str, GpuMetrics] = field(default_factory=dict)
    hits: float = 0.0
    misses: float = 0.0
    running: float = 0.0
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    generated_tokens: float = 0.0
    cache_used: float | None = None
    tokens: Tokens | None = None

    @property
    def queued(self) -> float:
        return sum(self.pending.values())

    @property
    def p99(self) -> float | None:
        """Milliseconds; None where the server exports none, or has answered nothing in the last minute."""
        found = self.quantiles.get(0.99)
        return found if found is not None and math.isfinite(found) else None

    @property
    def rejected(self) -> float:
        """Requests that waited for longer than the queue's policy allows. Triton 2.51 counts those nowhere that a full
        queue turns away."""
        return self.failures.get("REJECTED", 0.0)

    @property
    def timed(self) -> float:
        """Requests of which Triton knows how long they took: answered with success, or with an error that it takes for
        one."""
        return sum(self.successes.values())

    @property
    def answered(self) -> float:
        """With success. A failure is counted before its answer is sent, and Triton counts afterwards."""
        return max(0.0, self.timed - sum(self.mistaken.values()))

    @property
    def broken(self) -> float:
        """Failed requests that are the engine's fault: neither given up by the client nor turned away by a full
        queue, nor with inputs that no engine would take."""
        counted = sum(count for reason, count in self.failures.items() if reason not in ("CANCELED", "REJECTED"))
        return counted + sum(count for fault, count in self.mistaken.items() if fault != "request")
