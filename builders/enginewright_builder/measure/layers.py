"""Where a request's time goes: layers that sum to what the client saw, and what to do about each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from enginewright_builder.contract import Bound, ServingChoice

Layer = Literal["compute", "postprocess", "preprocess", "input_output", "queue", "transport"]
# In the order in which a reader meets them: from the device outwards.
NAMES: dict[Layer, str] = {"compute": "Model compute", "postprocess": "Postprocessing",
                           "preprocess": "Preprocessing", "input_output": "Memory and copies",
                           "queue": "Batching and queueing", "transport": "Transport"}
# A layer of less than this share is not worth anybody's time.
NEGLIGIBLE = 0.05


@dataclass(frozen=True, kw_only=True)
class Folded:
    """Shares of a run of ``batch`` samples that are spent on steps in the engine's graph in front of the model and
    behind it, 0 to 1. None: there are none, or they could not be separated."""

    batch: int
    preprocess: float | None = None
    postprocess: float | None = None


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Mean milliseconds that a request spends waiting for a batch, in the model, on what is done for the client before
    and after it, moving tensors in and out, and on the wire; together what the client saw. None: nothing is done there,
    or it is within ``compute_ms``, as it could not be separated.

    ``disagreement_ms`` is by how much the server measured more than the client, normally 0: clocks differ, and its
    statistics hold the requests at the window's edges too. Its parts were then shortened alike so that the sum holds,
    and no transport is left.
    """

    queue_ms: float
    compute_ms: float
    input_output_ms: float
    transport_ms: float
    disagreement_ms: float = 0.0
    preprocess_ms: float | None = None
    postprocess_ms: float | None = None

    @property
    def total_ms(self) -> float:
        return sum(self.of(layer) for layer in NAMES)

    @property
    def known(self) -> dict[Layer, float]:
        """Those that were measured, in the order of :data:`NAMES`."""
        every: dict[Layer, float | None] = {
            "compute": self.compute_ms, "postprocess": self.postprocess_ms, "preprocess": self.preprocess_ms,
            "input_output": self.input_output_ms, "queue": self.queue_ms, "transport": self.transport_ms}
        return {layer: value for layer, value in every.items() if value is not None}

    def of(self, layer: Layer) -> float:
        return self.known.get(layer, 0.0)

    def share(self, layer: Layer) -> float:
        return self.of(layer) / self.total_ms if self.total_ms else 0.0


def split(before: Mapping[str, Any], after: Mapping[str, Any], client_mean_ms: float, *,
          ahead_ms: float | None = None, behind_ms: float | None = None, folded: Folded | None = None) -> Layers:
    """From two readings of Triton's cumulative ``inference_stats`` around a window, and the client's mean in it.

    ``ahead_ms`` and ``behind_ms`` are what of a request's compute went by before the engine ran and after it, None
    where nothing did. ``folded`` are the shares of the rest that are not the model's."""

    def mean_ms(part: str) -> float:
        count = int(after[part]["count"]) - int(before[part]["count"])
        return (int(after[part]["ns"]) - int(before[part]["ns"])) / count / 1e6 if count else 0.0

    queue, compute = mean_ms("queue"), mean_ms("compute_infer")
    copies = mean_ms("compute_input") + mean_ms("compute_output")
    server = queue + compute + copies
    fit = client_mean_ms / server if server > client_mean_ms else 1.0
    ahead = None if ahead_ms is None else min(ahead_ms, compute)
    behind = None if behind_ms is None else min(behind_ms, compute - (ahead or 0.0))
    engine, shares = compute - (ahead or 0.0) - (behind or 0.0), folded or Folded(batch=0)
    first = None if shares.preprocess is None else engine * shares.preprocess
    last = None if shares.postprocess is None else engine * shares.postprocess
    model = engine - (first or 0.0) - (last or 0.0)
    return Layers(queue_ms=queue * fit, compute_ms=model * fit, input_output_ms=copies * fit,
                  transport_ms=max(0.0, client_mean_ms - server), disagreement_ms=max(0.0, server - client_mean_ms),
                  preprocess_ms=_sum(ahead, first, fit), postprocess_ms=_sum(behind, last, fit))


def _sum(one: float | None, other: float | None, fit: float) -> float | None:
    return None if one is None and other is None else ((one or 0.0) + (other or 0.0)) * fit


def advice(layers: Layers, serving: ServingChoice, *, bound: Bound = "", triton_backend: str = "python"
           ) -> dict[Layer, str]:
    """One sentence for each layer that was measured, in the order of :data:`NAMES`."""
    sentences: dict[Layer, str] = {"compute": _COMPUTE[bound], "postprocess": _POSTPROCESS, "preprocess": _PREPROCESS,
                                   "input_output": _copies(triton_backend), "queue": _queue(layers, serving),
                                   "transport": _TRANSPORT}
    return {layer: sentences[layer] if layers.share(layer) >= NEGLIGIBLE else _NOTHING for layer in layers.known}


_NOTHING = "Nothing to gain here."
_PREPROCESS = ("What makes the model's inputs of what clients send: texts that are split, or images whose size is near "
               "what the model takes, shorten it.")
_POSTPROCESS = "What makes answers of the model's outputs: fewer steps shorten it, and smaller outputs to begin with."
_TRANSPORT = ("Serialising and the wire: fewer and larger requests, a client on the same node, or Triton's shared "
              "memory shorten it.")
_COMPUTE: dict[Bound, str] = {
    "compute": "The device's arithmetic is the limit: only less arithmetic (a lower precision, a smaller model) or a "
               "faster device shortens it.",
    "bandwidth": "Reading weights and activations is the limit: narrower types shorten it, and larger batches use each "
                 "weight more often.",
    "overhead": "Its matrix products explain little of it: the time goes to launching them and to the small operations "
                "between, so fused operators, captured graphs on a GPU, and larger batches shorten it.",
    "": "A lower precision, a smaller model or a faster device would shorten it.",
}


def _copies(triton_backend: str) -> str:
    if triton_backend == "python":
        return ("Triton's Python backend hands tensors through shared memory: a server image with the engine's native "
                "backend saves that; smaller or narrower tensors shorten it.")
    return "Tensors move between host and device: fewer, smaller or narrower inputs and outputs shorten it."


def _queue(layers: Layers, serving: ServingChoice) -> str:
    delay_ms = serving.max_queue_delay_us / 1e3
    if delay_ms and layers.queue_ms <= 2 * delay_ms:
        return (f"Requests wait up to {serving.max_queue_delay_us} µs so that batches fill: a shorter delay gives "
                "latency back and costs throughput.")
    return ("Requests wait for an instance that is busy: another replica, or fewer requests in flight on each, ends "
            "that.")
