"""What it brings to run requests of different length together: the shipped configuration with it, without it, and with
clients that fill every request up to the longest, on one server."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from enginewright_builder.contract import ObjectiveRequest, ServingChoice
from enginewright_builder.data.lengths import lengths
from enginewright_builder.engines.base import Artifact, Joined
from enginewright_builder.pod.python_model.lengths import Lengths
from enginewright_builder.report.performance import Joining
from enginewright_builder.sweep.bench import Bench, make_requests
from enginewright_builder.sweep.result import Point
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.client import Server
from enginewright_builder.triton.repository import write_model

SECONDS = 2.0
# What replicas count (``pod/python_model/model.py``).
OWN, PADDING = "enginewright_positions_total", "enginewright_padding_positions_total"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load:
    """One configuration under ``concurrency`` requests in flight."""

    serving: ServingChoice
    concurrency: int
    cores: int
    gpus: tuple[int, ...] = ()
    objective: ObjectiveRequest = dataclasses.field(default_factory=ObjectiveRequest)
    seconds: float = SECONDS


async def measure_joining(server: Server, root: Path, artifact: Artifact, model_name: str, samples: Sequence[Tensors],
                          load: Load) -> Joining:
    """``samples`` are single requests, each in its own length. ``root`` is where the server finds models; it has none
    of this one's afterwards. Raises :class:`UserError` ``ServerLoadFailed``."""
    joined = artifact.joined
    assert joined is not None  # the caller has looked
    plain, longest = dataclasses.replace(artifact, joined=None), to_longest(joined, samples)
    before = counted(await server.metrics())
    together = await _point(server, root, artifact, model_name, samples, load)
    own, padding = (after - seen for after, seen in zip(counted(await server.metrics()), before, strict=True))
    apart = await _point(server, root, plain, model_name, samples, load)
    filled = await _point(server, root, plain, model_name, longest, load)
    found = lengths(samples, joined.mask)
    return Joining(
        mask=joined.mask, shortest=int(found.min()), median=float(np.median(found)), longest=int(found.max()),
        run_positions=joined.run_positions, padding=padding / (own + padding) if own else None,
        padding_to_longest=1 - float(found.mean()) / int(found.max()), throughput=together.throughput,
        throughput_apart=apart.throughput, throughput_to_longest=filled.throughput, mean_batch=together.mean_batch,
        mean_batch_apart=apart.mean_batch, mean_batch_to_longest=filled.mean_batch, concurrency=load.concurrency)


def to_longest(joined: Joined, samples: Sequence[Tensors]) -> list[Tensors]:
    """As clients send them that fill everything up to one length."""
    filler, longest = Lengths(joined.described), int(lengths(samples, joined.mask).max())
    return [filler.filled(dict(sample), longest) for sample in samples]


async def _point(server: Server, root: Path, artifact: Artifact, model_name: str, samples: Sequence[Tensors],
                 load: Load) -> Point:
    shutil.rmtree(root / model_name, ignore_errors=True)
    folder = write_model(root, model_name, artifact, load.serving, cores=load.cores, gpus=load.gpus)
    try:
        bench = Bench(server=server, artifact=artifact, model_name=model_name, objective=load.objective,
                      cores=load.cores, gpus=load.gpus, point_seconds=load.seconds,
                      requests=make_requests(model_name, samples, load.serving.max_batch_size))
        point = await bench.point(load.serving, load.concurrency)
        await server.unload(model_name)
        return point
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def counted(page: str) -> tuple[float, float]:
    """Positions and padding that a server has run since it began, of all its models."""
    def total(name: str) -> float:
        return sum(map(float, re.findall(rf"^{name}{{[^}}]*}} (\S+)$", page, re.MULTILINE)))

    return total(OWN), total(PADDING)
