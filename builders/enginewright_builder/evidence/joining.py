"""What it brings to run requests of different length together: the shipped configuration with it, without it, and with
everything filled up to the longest, on one server. Token ids are filled up by clients; texts by the server, up to the
longest that it runs at once."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from enginewright_builder.contract import ObjectiveRequest, ServingChoice
from enginewright_builder.data.lengths import lengths
from enginewright_builder.engines.base import Artifact, Joined
from enginewright_builder.pod.python_model.lengths import Lengths
from enginewright_builder.pod.python_model.tokeniser import Tokeniser
from enginewright_builder.report.performance import Joining
from enginewright_builder.steps import COMPARED_SECONDS
from enginewright_builder.sweep.bench import Bench, make_requests
from enginewright_builder.sweep.result import Point
from enginewright_builder.tensors import Tensors
from enginewright_builder.texts import TOKENISER_FILE
from enginewright_builder.triton.client import Server
from enginewright_builder.triton.own_metrics import PADDING, POSITIONS, total
from enginewright_builder.triton.repository import write_model

# What a run would have to cost, in positions, for any padding to be cheaper than one more.
_ONE_RUN = 1e12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load:
    """One configuration under ``concurrency`` requests in flight, for ``seconds`` each time."""

    serving: ServingChoice
    concurrency: int
    cores: int
    gpus: tuple[int, ...] = ()
    objective: ObjectiveRequest = dataclasses.field(default_factory=ObjectiveRequest)
    seconds: float = COMPARED_SECONDS[1]


async def measure_joining(server: Server, root: Path, artifact: Artifact, model_name: str, samples: Sequence[Tensors],
                          load: Load) -> Joining:
    """``samples`` are single requests, each in its own length. ``root`` is where the server finds models; it has none
    of this one's afterwards. Raises :class:`UserError` ``ServerLoadFailed``."""
    joined = artifact.joined
    assert joined is not None  # the caller has looked
    texts, plain = TOKENISER_FILE in artifact.files, dataclasses.replace(artifact, joined=None)

    async def point(how: Artifact, sent: Sequence[Tensors]) -> tuple[Point, float | None]:
        before = counted(await server.metrics())
        found = await _point(server, root, how, model_name, sent, load)
        own, padding = (after - seen for after, seen in zip(counted(await server.metrics()), before, strict=True))
        return found, padding / (own + padding) if own else None

    together, padding = await point(artifact, samples)
    apart, _ = await point(plain, samples)
    if texts:
        whole = dataclasses.replace(artifact, joined=dataclasses.replace(joined, run_positions=_ONE_RUN))
        filled, most = await point(whole, samples)
    else:
        filled, most = await point(plain, to_longest(joined, samples))
    found = lengths(_tokens(artifact, samples) if texts else samples, joined.mask)
    return Joining(
        mask=joined.mask, shortest=int(found.min()), median=float(np.median(found)), longest=int(found.max()),
        run_positions=joined.run_positions, padding=padding,
        padding_to_longest=most if texts else 1 - float(found.mean()) / int(found.max()), texts=texts,
        throughput=together.throughput, throughput_apart=apart.throughput, throughput_to_longest=filled.throughput,
        mean_batch=together.mean_batch, mean_batch_apart=apart.mean_batch, mean_batch_to_longest=filled.mean_batch,
        concurrency=load.concurrency)


def _tokens(artifact: Artifact, samples: Sequence[Tensors]) -> list[Tensors]:
    tokeniser = Tokeniser(artifact.files[TOKENISER_FILE])
    return [tokeniser.arrays(sample[tokeniser.input]) for sample in samples]


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
    return total(page, POSITIONS), total(page, PADDING)
