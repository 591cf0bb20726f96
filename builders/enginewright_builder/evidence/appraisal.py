"""After the sweep: what the shipped configuration is held against, and what limits it. Measures; ``performance``
judges."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from enginewright_builder.competition.candidates import FULL_PRECISION, Candidate
from enginewright_builder.competition.ladder import Climb
from enginewright_builder.contract import BuildRequest
from enginewright_builder.engines.base import Artifact, ExportedModel
from enginewright_builder.errors import classify
from enginewright_builder.evidence.before import serve_plainly
from enginewright_builder.evidence.performance import Performance, Served, assess, measure_work, measured
from enginewright_builder.steps import Budget
from enginewright_builder.sweep import SweepResult
from enginewright_builder.system import available_cpus
from enginewright_builder.tensors import Tensors

log = logging.getLogger(__name__)

# What it takes on a slow machine. With less of the budget left it is skipped: it decides nothing about what ships.
SECONDS = 15.0


def appraise(request: BuildRequest, exported: ExportedModel, climbed: Climb, swept: SweepResult,
             inputs: Sequence[Tensors], workspace: Path, budget: Budget, gpus: tuple[int, ...] = ()) -> Performance:
    """``inputs`` are single samples, as the sweep sends them. What cannot be measured is a note, never an error."""
    shipped, backend = set(climbed.shipped.values()), climbed.artifact.triton_backend
    figures = measured(climbed.built)
    if budget.left < SECONDS:
        return assess(swept, figures, shipped, backend, notes=(
            f"Of the time budget {max(0.0, budget.left):.0f} s were left: plain serving and the roofline were not "
            "measured.",))
    before, served = _before(request, climbed, swept, inputs, workspace, gpus)
    counted, told = measure_work(exported.path, inputs[0], figures, request.device.accelerator)
    return assess(swept, figures, shipped, backend, counted=counted, before=before, notes=(*served, *told))


def _before(request: BuildRequest, climbed: Climb, swept: SweepResult, inputs: Sequence[Tensors], workspace: Path,
            gpus: tuple[int, ...]) -> tuple[Served | None, tuple[str, ...]]:
    found = plainest(climbed.built)
    if found is None:
        return None, ("No candidate of full precision was built to be served plainly for comparison.",)
    name, artifact = found
    try:
        point = serve_plainly(artifact, request.model_name, inputs, workspace, concurrency=swept.best.concurrency,
                              objective=request.objective, cores=available_cpus(), gpus=gpus)
    except Exception as error:  # for the record alone: no finished build is lost for it
        log.warning("%s could not be served plainly", name, exc_info=error)
        return None, (f"{name} could not be served plainly for comparison: {classify(error).message[:200]}",)
    return Served(name=name, point=point), ()


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
