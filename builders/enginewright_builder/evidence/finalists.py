"""Evidence of the first half of a build: what is measured on the device itself, and which engine is served plainly."""

from __future__ import annotations

from collections.abc import Sequence

from enginewright_builder.competition.candidates import FULL_PRECISION, Candidate
from enginewright_builder.contract import BuildRequest
from enginewright_builder.engines.base import Artifact, ExportedModel
from enginewright_builder.evidence import appraisal
from enginewright_builder.hand_over import Counted
from enginewright_builder.measure.roofline import Measured
from enginewright_builder.report.performance import measure_work
from enginewright_builder.steps import Budget
from enginewright_builder.tensors import Tensors


def count(request: BuildRequest, exported: ExportedModel, sample: Tensors, figures: Sequence[Measured], budget: Budget
          ) -> Counted:
    """The roofline's part, on the device itself. ``sample`` is one sample. What cannot be measured is a note, never an
    error."""
    if budget.left < appraisal.SECONDS:
        return Counted(notes=(appraisal.too_late(budget, "the roofline was"),))
    found, notes = measure_work(exported.path, sample, figures, request.device.accelerator)
    return Counted(work=found[0], ceilings=found[1], notes=notes) if found else Counted(notes=notes)


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
