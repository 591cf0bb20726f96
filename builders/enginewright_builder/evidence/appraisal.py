"""What the shipped configuration is held against, and what limits it. Measures; ``performance`` judges."""

from __future__ import annotations

import logging
from pathlib import Path

from enginewright_builder.engines.base import Artifact
from enginewright_builder.errors import classify
from enginewright_builder.evidence.before import serve_plainly_on
from enginewright_builder.evidence.joining import Load, measure_joining
from enginewright_builder.hand_over import Handed
from enginewright_builder.report.performance import Joining, Performance, Served, assess
from enginewright_builder.steps import COMPARED_SECONDS, COMPARED_SHARE, Budget
from enginewright_builder.sweep import SweepResult
from enginewright_builder.triton.client import Server

log = logging.getLogger(__name__)

# What plain serving, or the roofline, takes on a slow machine. With less of the budget left it is skipped: it decides
# nothing about what ships.
SECONDS = 8.0


async def appraise(server: Server, repository: Path, handed: Handed, artifact: Artifact, swept: SweepResult,
                   budget: Budget, gpus: tuple[int, ...] = ()) -> Performance:
    """After the sweep of ``artifact``, which ships. What cannot be measured is a note, never an error."""
    document, backend = handed.document, artifact.triton_backend
    before, served = await _before(server, repository, handed, swept, budget, gpus)
    joining, found = await _joining(server, repository, handed, artifact, swept, budget, gpus)
    work, ceilings = document.counted.work, document.counted.ceilings
    return assess(swept, document.figures, set(document.shipped), backend, before=before,
                  counted=(work, ceilings) if work and ceilings else None, joining=joining,
                  not_apart=document.not_apart, notes=(*served, *found, *document.counted.notes))


async def _before(server: Server, repository: Path, handed: Handed, swept: SweepResult, budget: Budget,
                  gpus: tuple[int, ...]) -> tuple[Served | None, tuple[str, ...]]:
    if budget.left < SECONDS:
        return None, (too_late(budget, "plain serving was"),)
    if handed.plain is None:
        return None, ("No candidate of full precision was built to be served plainly for comparison.",)
    request, (name, artifact) = handed.document.request, handed.plain
    try:
        point = await serve_plainly_on(server, repository, artifact, request.model_name, handed.requests,
                                       concurrency=swept.best.concurrency, objective=request.objective,
                                       cores=handed.document.hardware.cores, gpus=gpus, seconds=_each(budget))
    except Exception as error:  # for the record alone: no finished build is lost for it
        log.warning("%s could not be served plainly", name, exc_info=error)
        return None, (f"{name} could not be served plainly for comparison: {classify(error).message[:200]}",)
    return Served(name=name, point=point), ()


async def _joining(server: Server, repository: Path, handed: Handed, artifact: Artifact, swept: SweepResult,
                   budget: Budget, gpus: tuple[int, ...]) -> tuple[Joining | None, tuple[str, ...]]:
    if artifact.joined is None or swept.serving.max_batch_size < 2:
        return None, ()
    if artifact.triton_backend != "python":
        return None, (f"Triton's {artifact.triton_backend} backend was measured to be the better way, and joins "
                      "requests of equal length alone.",)
    if budget.left < SECONDS:
        return None, (too_late(budget, "what joined lengths bring was"),)
    load = Load(serving=swept.serving, concurrency=max(swept.best.concurrency, 2 * swept.serving.max_batch_size),
                cores=handed.document.hardware.cores, gpus=gpus, seconds=_each(budget))
    try:
        return await measure_joining(server, repository, artifact, handed.document.request.model_name, handed.requests,
                                     load), ()
    except Exception as error:  # for the record alone: no finished build is lost for it
        log.warning("joined lengths could not be measured", exc_info=error)
        return None, (f"What joined lengths bring could not be measured: {classify(error).message[:200]}",)


def _each(budget: Budget) -> float:
    """Seconds of one point."""
    return budget.share(COMPARED_SHARE, COMPARED_SECONDS)


def too_late(budget: Budget, what: str) -> str:
    return f"Of the time budget {max(0.0, budget.left):.0f} s were left: {what} not measured."
