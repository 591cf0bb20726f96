"""Evidence of the first half of a build: what is measured on the device itself, and which engine is served plainly."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from enginewright_builder.competition.candidates import FULL_PRECISION, Candidate
from enginewright_builder.contract import BuildRequest
from enginewright_builder.engines.base import Artifact, ExportedModel
from enginewright_builder.errors import brief
from enginewright_builder.evidence import appraisal
from enginewright_builder.hand_over import Counted
from enginewright_builder.measure.ceilings import measure_ceilings
from enginewright_builder.measure.roofline import Ceilings, Measured, Work, arithmetic
from enginewright_builder.measure.work import count_work
from enginewright_builder.shapes import takes_batches
from enginewright_builder.steps import Budget
from enginewright_builder.tensors import Tensors

log = logging.getLogger(__name__)


def count(request: BuildRequest, exported: ExportedModel, sample: Tensors, figures: Sequence[Measured], budget: Budget
          ) -> Counted:
    """The roofline's part, on the device itself. ``sample`` is one sample. What cannot be measured is a note, never an
    error."""
    if budget.left < appraisal.SECONDS:
        return Counted(notes=(appraisal.too_late(budget, "the roofline was"),))
    if exported.missing:
        return Counted(notes=("The roofline was not measured: it counts operators of ONNX, which this model does "
                              "not have.",))
    found, notes = _measure_work(exported, sample, figures, request.device.accelerator)
    return Counted(work=found[0], ceilings=found[1], notes=notes) if found else Counted(notes=notes)


def measured(candidates: Sequence[Candidate]) -> list[Measured]:
    """Every candidate at every batch that it was timed at."""
    return [Measured(name=one.name, backend=one.rung.backend, precision=one.rung.precision, batch=batch,
                     ms=timing.percentile(50), best_ms=min(timing.times_ms), size_bytes=one.artifact.size_bytes)
            for one in candidates if one.artifact for batch, timing in sorted(one.timings.items())]


def plainest(built: Sequence[Candidate]) -> tuple[str, Artifact] | None:
    """The most precise candidate that was built, the fastest of those at the smallest batch."""
    able = [(one, one.artifact) for one in built if one.artifact and one.rung.precision in FULL_PRECISION]
    if not able:
        return None
    one, artifact = min(able, key=lambda pair: (FULL_PRECISION.index(pair[0].rung.precision), _fastest(pair[0])))
    return one.name, artifact


def _fastest(one: Candidate) -> float:
    batch = min(one.timings, default=None)
    return one.timings[batch].percentile(50) if batch is not None else float("inf")


def _measure_work(exported: ExportedModel, sample: Tensors, figures: Sequence[Measured], accelerator: str
                  ) -> tuple[tuple[Work, Ceilings] | None, tuple[str, ...]]:
    """Counts the model's work and measures the device's ceilings for the types that candidates compute in; with notes.

    Never raises: a report without a roofline is better than no engine.
    """
    kinds = {kind for one in figures if (kind := arithmetic(one.precision))}
    try:
        work = count_work(exported.path, exported.given(sample), batched=takes_batches(exported.interface))
        ceilings = measure_ceilings(accelerator, kinds)
    except Exception as error:  # any class of any runtime library
        log.warning("the roofline was not measured", exc_info=error)
        return None, (f"The roofline was not measured: {brief(error, 200)}",)
    return (work, ceilings), tuple(f"{name} is not counted in the roofline, whose floors are too low therefore."
                                   for name in work.uncounted)
