"""The report's section on performance: what bounds the engine, what its precision bought, what it costs to run, and
what to do next. Assembled from measurements; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from enginewright_builder.contract import Bound, DeviceRequest
from enginewright_builder.measure.energy import DeviceUse, inferences_per_joule
from enginewright_builder.measure.layers import advice
from enginewright_builder.measure.roofline import (
    Ceilings,
    Measured,
    PrecisionGain,
    Roof,
    Work,
    precision_gains,
    roof,
)
from enginewright_builder.measure.runway import NextStep, next_step
from enginewright_builder.sweep.result import Point, SweepResult

MILLION = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Served:
    """A candidate behind Triton: what is compared as before and after."""

    name: str
    point: Point


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """Of one inference: operations and bytes of a batch of 1 in FP32; ``uncounted`` names heavy operators that no
    formula is known for."""

    flops: float
    bytes_fp32: float
    ceilings: Ceilings
    uncounted: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Joining:
    """Requests of ``shortest`` to ``longest`` positions of ``mask``, with ``concurrency`` in flight.
    ``padding`` is the share of all positions run that was padding, ``padding_to_longest`` what clients cause that fill
    everything up to the longest; inferences a second, and of an execution, with joined lengths, without (``apart``),
    and with such clients. ``texts``: clients send texts, and the server fills all that it runs at once up to the
    longest of it instead. A run costs as much as ``run_positions`` beside its own. None: not counted."""

    mask: str
    shortest: int
    median: float
    longest: int
    run_positions: float
    padding: float | None
    padding_to_longest: float | None
    throughput: float
    throughput_apart: float
    throughput_to_longest: float
    mean_batch: float
    mean_batch_apart: float
    mean_batch_to_longest: float
    concurrency: int
    texts: bool = False


@dataclass(frozen=True, kw_only=True)
class Performance:
    """``before`` is the full-precision candidate on Triton as it comes: one instance, no dynamic batching, under the
    same load as the shipped configuration. ``roofs`` and ``precisions`` are of the engines measured bare; ``bound`` and
    ``attained`` of the one that shipped. ``advice`` has a sentence for each latency layer. ``use`` is the device under
    the load of the shipped point. None and empty: not measured, and ``notes`` say why.
    ``joining`` is None where requests of different length do not run together. ``not_apart`` says which steps are
    within model compute, as they could not be timed by themselves.
    """

    advice: Mapping[str, str]
    next_step: NextStep
    before: Served | None = None
    arithmetic: Arithmetic | None = None
    roofs: tuple[Roof, ...] = ()
    precisions: tuple[PrecisionGain, ...] = ()
    bound: Bound = ""
    attained: float | None = None
    throughput_at_objective: float | None = None
    device_seconds_per_million: float | None = None
    use: DeviceUse | None = None
    inferences_per_joule: float | None = None
    notes: tuple[str, ...] = field(default=())
    joining: Joining | None = None
    not_apart: tuple[str, ...] = ()


def assess(swept: SweepResult, figures: Sequence[Measured], shipped: Collection[str], triton_backend: str, *,
           counted: tuple[Work, Ceilings] | None = None, before: Served | None = None,
           notes: tuple[str, ...] = (), joining: Joining | None = None, not_apart: tuple[str, ...] = ()
           ) -> Performance:
    """``shipped`` names the candidates that serve: one, or a member for each bucket."""
    best = swept.best
    roofs = tuple(filter(None, (roof(one, *counted) for one in figures))) if counted else ()
    mine = shipped_roof(roofs, shipped, best.mean_batch)
    bound: Bound = mine.bound if mine else ""
    attained = mine.attained if mine else None
    kept = swept.objective_met or swept.requests_to_show > 0
    sustained = round(best.throughput, 3) if kept else None
    sentences = advice(best.layers, best.serving, bound=bound, triton_backend=triton_backend)
    return Performance(
        advice={str(layer): text for layer, text in sentences.items()},
        next_step=next_step(best.layers, attained=attained, bound=bound), before=before,
        arithmetic=_arithmetic(*counted) if counted else None, roofs=roofs, precisions=precision_gains(figures),
        bound=bound, attained=attained, throughput_at_objective=sustained,
        device_seconds_per_million=MILLION / sustained if sustained else None, use=best.use,
        inferences_per_joule=inferences_per_joule(best.use, best.throughput), notes=notes, joining=joining,
        not_apart=not_apart)


def shipped_roof(roofs: Sequence[Roof], shipped: Collection[str], batch: float) -> Roof | None:
    """Of an engine that serves, at the smallest measured batch that holds what Triton executed on average."""
    mine = sorted((one for one in roofs if one.name in shipped), key=lambda one: (one.batch, one.measured_ms))
    return next((one for one in mine if one.batch >= batch), mine[-1] if mine else None)


def device_class(device: DeviceRequest) -> tuple[str, int]:
    """The class that prices are given for, and how many of it a replica takes."""
    if device.accelerator != "gpu":
        return "cpu", 1
    product = device.products[0] if device.products else "gpu"
    return (f"{product}/{device.mig_profile}" if device.mig_profile else product), max(1, device.gpu_count)


def _arithmetic(work: Work, ceilings: Ceilings) -> Arithmetic:
    return Arithmetic(flops=work.flops_at(1), bytes_fp32=work.bytes_at(1, 4), ceilings=ceilings,
                      uncounted=work.uncounted)
