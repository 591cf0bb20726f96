"""What was measured, and what an engine is: the parts of an outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from enginewright_builder.contract.names import Bound, Verdict


@dataclass(frozen=True, kw_only=True)
class BucketFigure:
    """A candidate's measured figures at one batch: the median in milliseconds with its 95 % interval, and ``batch``
    over the median as inferences a second."""

    batch: int
    p50_ms: float
    low_ms: float
    high_ms: float
    throughput: float


@dataclass(frozen=True, kw_only=True)
class TaskFigure:
    """A metric on labels: the source model's, and a candidate's as ``value``. ``loss`` is what the candidate loses, of
    1, below 0 where it is better; ``loss_high`` its one-sided 95 % upper bound, which may be ``max_loss`` at most."""

    metric: str
    source: float
    value: float
    loss: float
    loss_high: float
    max_loss: float


@dataclass(frozen=True, kw_only=True)
class GroupFigure:
    """Agreement with the source model, and the metric on labels, in one group of samples. None: not asked for, or the
    group has too few samples to prove it; ``too_small`` says the latter."""

    group: str
    samples: int
    accuracy: float | None = None
    accuracy_low: float | None = None
    task: TaskFigure | None = None
    too_small: bool = False


@dataclass(frozen=True, kw_only=True)
class GroupsSummary:
    """How many groups of ``by`` were judged by all that is asked, which were too small for that (the first few names,
    and how many in all), and in which the engine lost most."""

    by: str
    judged: int
    too_small: tuple[str, ...] = ()
    too_small_count: int = 0
    worst: str = ""


@dataclass(frozen=True, kw_only=True)
class TokenFigures:
    """One load on a language model's server, with ``concurrency`` requests in flight. Milliseconds until the first
    token (``ttft``) and for each token after it (``tpot``), at the 50th and 99th percentile of requests.
    ``output_rate`` is tokens a second, ``goodput`` the requests a second that met the objective: all where none was
    asked for. Of ``proposed`` tokens the model took ``accepted``, by the server's own count: 0 without speculation."""

    concurrency: int
    ttft_p50_ms: float
    ttft_p99_ms: float
    tpot_p50_ms: float
    tpot_p99_ms: float
    output_rate: float
    goodput: float
    proposed: int = 0
    accepted: int = 0


@dataclass(frozen=True, kw_only=True)
class TokenWork:
    """What a language model's requests take of one replica at the load that it was measured with. A request had
    ``input_tokens``, those that no prefix cache answered, and ``output_tokens`` on average; each takes
    ``input_seconds`` and ``output_seconds`` of the whole replica."""

    input_tokens: float
    output_tokens: float
    input_seconds: float
    output_seconds: float


@dataclass(frozen=True, kw_only=True)
class CandidateSummary:
    """One measured rung. Milliseconds for one batch of ``batch``, the largest that the objective uses; ``throughput``
    in inferences (batch elements) a second; ``accuracy`` is the metric's value, ``accuracy_low`` its one-sided 95 %
    lower bound; None: not measured. ``name`` tells it apart from others of its backend and precision; ``buckets`` has
    the figures at every batch that it was measured at. ``serves`` names the batch buckets that it ships for, each by
    its largest batch, ascending; empty for one that does not ship. ``build_seconds`` and ``gate_seconds`` are what it
    took of the time budget: to build it, and to hold its answers against the source model's. ``task`` is None where
    none was asked for, or where it was not measured. Of a language model ``tokens`` is its best load, None where it was
    put under none; ``batch``, latencies and throughput, which are of inferences, are 0 and None.
    """

    backend: str
    precision: str
    batch: int
    verdict: Verdict
    reason: str = ""
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    throughput: float | None = None
    accuracy: float | None = None
    accuracy_low: float | None = None
    size_bytes: int | None = None
    name: str = ""
    buckets: tuple[BucketFigure, ...] = ()
    serves: tuple[int, ...] = ()
    build_seconds: float | None = None
    gate_seconds: float | None = None
    task: TaskFigure | None = None
    tokens: TokenFigures | None = None


def requests_needed(percentile: float) -> int:
    """So many that one of them is beyond the percentile: 100 for the 99th, 1,000 for the 99.9th. Of fewer, it is the
    slowest of all by the nearest rank, and says little of the next thousand."""
    return math.ceil(round(100 / (100 - percentile), 6))


@dataclass(frozen=True, kw_only=True)
class BatchTime:
    """What one batch takes from start to answer, median, while every instance has one."""

    batch: int
    p50_ms: float


# The server's own processes, looked at from the build's container; or what the server's container says of itself.
MemorySeen = Literal["processes", "container"]


@dataclass(frozen=True, kw_only=True)
class MemoryFigures:
    """What a server of the finished repository took, in bytes; pages that its processes share count once.

    ``empty_bytes``: ready, without a model. ``loaded_bytes``: the model loaded, warm, and asked. ``peak_bytes``: the
    most from the load on, with ``concurrency`` requests in flight as at the shipped point; ``held_bytes`` is the most
    that the kernel could not take back (anonymous and shared memory, without pages of files): in a container with
    less, the kernel ends the server. ``cores``: processor time of that load over its seconds. ``device_…``: memory of
    its GPUs. ``pinned_bytes``: the most that was in use of Triton's pool of pinned host memory, ``pinned_pool_bytes``.
    None and 0: not known; of a pool and a device also: there is no GPU.
    """

    seen: MemorySeen
    empty_bytes: int
    loaded_bytes: int
    peak_bytes: int
    held_bytes: int
    concurrency: int
    cores: float | None = None
    device_empty_bytes: int | None = None
    device_loaded_bytes: int | None = None
    device_peak_bytes: int | None = None
    pinned_bytes: int | None = None
    pinned_pool_bytes: int | None = None


class _OfRequests(Protocol):
    @property
    def requests(self) -> int: ...

    @property
    def requests_to_show(self) -> int: ...


class _Counted:
    """A summary that says of how many requests the objective was kept."""

    @property
    def too_few_requests(self: _OfRequests) -> bool:
        """Whether the objective was kept by too few requests to say that it is met."""
        return self.requests < self.requests_to_show


@dataclass(frozen=True, kw_only=True)
class EngineSummary(_Counted):
    """The winner as served by Triton in the shipped configuration (one replica, measured by the sweep).

    ``speedup`` is throughput at equal batch against the source model as it is (eager PyTorch, or the given ONNX).
    ``load_seconds`` is how long Triton took to load the finished repository: the start-up probe is sized by it.
    ``memory_bytes`` is the server's measured resident (CPU) or device (GPU) memory with the model loaded.
    ``throughput_at_objective`` is what one replica sustains within the latency objective (at the knee where there is
    none), None when it sustains nothing within it. ``device_class`` is ``cpu``, a GPU product, or ``product/profile``
    of a MIG slice; a replica takes ``device_count`` of them. ``bound`` says what limits the engine on its device.
    ``fallback`` is the reason for which no candidate may be served, where this is the source model itself instead.
    ``requests_to_show``: how many requests it takes to say that the latency objective is met, where fewer kept it
    (``objective_met`` is False then). ``memory`` is of the server alone in a process of its own, None in records of
    older builders.
    ``service_curve`` is by rising batch. The percentiles are of ``requests`` requests; ``p999_ms`` is None where these
    are fewer than it takes (:func:`requests_needed`). Of the ``mean_ms`` that a request takes, ``pre_ms`` go by before
    the model and ``post_ms`` after it; all three are None where neither was measured apart from the model. None, empty
    and 0: not measured.
    """

    backend: str
    precision: str
    triton_backend: str
    size_bytes: int
    speedup: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    throughput: float
    accuracy: float
    accuracy_low: float
    device: str
    runtime_version: str
    load_seconds: float
    memory_bytes: int = 0
    objective_met: bool = True
    evaluation: str = "held-out"  # or "synthetic" when the user gave no evaluation data
    throughput_at_objective: float | None = None
    device_class: str = ""
    device_count: int = 1
    inferences_per_joule: float | None = None
    gpu_utilisation: float | None = None  # 0 to 1, under the load of the shipped point
    power_watts: float | None = None  # that the device drew then, idle power included
    bound: Bound = ""
    fallback: str = ""
    service_curve: tuple[BatchTime, ...] = ()
    task: TaskFigure | None = None
    groups: GroupsSummary | None = None
    p999_ms: float | None = None
    requests: int = 0
    mean_ms: float | None = None
    pre_ms: float | None = None
    post_ms: float | None = None
    memory: MemoryFigures | None = None
    requests_to_show: int = 0


@dataclass(frozen=True, kw_only=True)
class GenerateSummary(_Counted):
    """The configuration of a language model's server that was published, as it was measured: one replica of
    ``device_count`` devices. :data:`SERVING_FILE` says how it is started.

    ``accuracy`` is the share of next tokens that are the unquantised model's, ``noise_floor`` the share that this model
    itself chooses otherwise when it is asked again, and ``accuracy_low`` 1 less that and less the upper 95 % bound of
    what is lost beyond it (in records of older builds, without ``noise_floor``, less that bound alone).
    ``divergence_high`` is the upper bound of the divergence beyond its own floor, in bits. ``gain`` is against the
    unquantised model by the server's own settings: goodput, or tokens a second where no objective was asked for.
    ``load_seconds`` is how long the server took until it was ready. ``memory_bytes`` 0: unknown. ``words`` are of the
    server's command line, after the model's folder; ``environment`` has the variables that it was proven with.
    ``requests`` are those of the load that ships, which was put on once more after it was chosen: 0 where that was not
    done, as without an objective. ``requests_to_show``: how many it takes to say that the objective is met, where fewer
    kept it (``objective_met`` is False then). ``work`` is of the load of ``tokens``; None in records of older builders.
    ``checkpoint`` names that of the request whose files were published; empty where they are the source's. ``draft``
    names that of the request which proposes tokens: its files were published, too, and :data:`DRAFT_PLACE` among the
    words stands for their folder."""

    name: str
    precision: str
    server: str
    server_version: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    gain: float
    tokens: TokenFigures
    objective_met: bool
    accuracy: float
    accuracy_low: float
    divergence_high: float
    prompts: int
    device: str
    device_class: str
    device_count: int
    load_seconds: float
    size_bytes: int
    memory_bytes: int = 0
    work: TokenWork | None = None
    checkpoint: str = ""
    draft: str = ""
    requests: int = 0
    requests_to_show: int = 0
    noise_floor: float = 0.0
