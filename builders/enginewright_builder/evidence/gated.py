"""What the engine that ships answers to the smoke test's samples in a batch that the gate compared it at."""

from __future__ import annotations

from enginewright_builder.data.sets import GATE_BATCH
from enginewright_builder.engines.base import Artifact, Runner
from enginewright_builder.engines.composite import CompositeRunner
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.smoke_record import SmokeSamples


def gated_answers(runner: Runner, artifact: Artifact, samples: SmokeSamples, largest: int) -> tuple[Tensors, ...]:
    """For each batch in which ``samples`` are sent; nothing where the gate compared the engine at that very batch."""
    return tuple(_gated(runner, artifact, samples, batch, min(GATE_BATCH, largest)) for batch in samples.batches)


def _gated(runner: Runner, artifact: Artifact, samples: SmokeSamples, batch: int, usual: int) -> Tensors:
    serving = next((one.artifact for one in artifact.members if batch <= one.up_to), artifact)
    if batch in (serving.rung.gated_at or (usual,)):
        return {}
    size = max(serving.rung.gated_at, default=usual)
    answer = runner.member(batch) if isinstance(runner, CompositeRunner) else runner
    return {name: array[:samples.count] for name, array in answer(samples.request(size)).items()}
