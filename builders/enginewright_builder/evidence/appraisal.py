"""What the shipped configuration is held against, and what limits it. Measures; ``performance`` judges."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from enginewright_builder.competition.candidates import FULL_PRECISION, Candidate
from enginewright_builder.contract import BuildRequest
from enginewright_builder.engines.base import Artifact, ExportedModel
from enginewright_builder.errors import classify
from enginewright_builder.evidence.before import serve_plainly_on
from enginewright_builder.evidence.performance import Performance, Served, assess, measure_work
from enginewright_builder.evidence.roofline import Measured
from enginewright_builder.hand_over import Counted, Handed
from enginewright_builder.steps import Budget
from enginewright_builder.sweep import SweepResult
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.client import Server

log = logging.getLogger(__name__)

# What each of both takes on a slow machine. With less of the budget left it is skipped: it decides nothing about what
# ships.
SECONDS = 8.0


def count(request: BuildRequest, exported: ExportedModel, sample: Tensors, figures: Sequence[Measured], budget: Budget
          ) -> Counted:
    """The roofline's part, on the device itself. ``sample`` is one sample. What cannot be measured is a note, never an
    error."""
    if budget.left < SECONDS:
        return Counted(notes=(_too_late(budget, "the roofline was"),))
    found, notes = measure_work(exported.path, sample, figures, request.device.accelerator)
    return Counted(work=found[0], ceilings=found[1], notes=notes) if found else Counted(notes=notes)


async def appraise(server: Server, repository: Path, handed: Handed, swept: SweepResult, budget: Budget,
                   gpus: tuple[int, ...] = ()) -> Performance:
    """After the sweep. What cannot be measured is a note, never an error."""
    told, backend = handed.told, handed.artifact.triton_backend
    before, served = await _before(server, repository, handed, swept, budget, gpus)
    work, ceilings = told.counted.work, told.counted.ceilings
    return assess(swept, told.figures, set(told.shipped), backend, before=before,
                  counted=(work, ceilings) if work and ceilings else None, notes=(*served, *told.counted.notes))


async def _before(server: Server, repository: Path, handed: Handed, swept: SweepResult, budget: Budget,
                  gpus: tuple[int, ...]) -> tuple[Served | None, tuple[str, ...]]:
    if budget.left < SECONDS:
        return None, (_too_late(budget, "plain serving was"),)
    if handed.plain is None:
        return None, ("No candidate of full precision was built to be served plainly for comparison.",)
    request, (name, artifact) = handed.told.request, handed.plain
    try:
        point = await serve_plainly_on(server, repository, artifact, request.model_name, handed.requests,
                                       concurrency=swept.best.concurrency, objective=request.objective,
                                       cores=handed.told.hardware.cores, gpus=gpus)
    except Exception as error:  # for the record alone: no finished build is lost for it
        log.warning("%s could not be served plainly", name, exc_info=error)
        return None, (f"{name} could not be served plainly for comparison: {classify(error).message[:200]}",)
    return Served(name=name, point=point), ()


def _too_late(budget: Budget, what: str) -> str:
    return f"Of the time budget {max(0.0, budget.left):.0f} s were left: {what} not measured."


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
