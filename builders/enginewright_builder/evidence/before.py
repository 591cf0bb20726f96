"""What serving the source model plainly would give: full precision on Triton as it comes, under the shipped load."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from enginewright_builder.contract import ObjectiveRequest, ServingChoice
from enginewright_builder.engines.base import Artifact
from enginewright_builder.shapes import takes_batches
from enginewright_builder.steps import COMPARED_SECONDS
from enginewright_builder.sweep.bench import Bench, make_requests
from enginewright_builder.sweep.result import Point
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.client import Server
from enginewright_builder.triton.repository import write_model


def plain(artifact: Artifact) -> ServingChoice:
    """Without a dynamic batcher, and with one instance: what a configuration gives that says nothing of either."""
    return ServingChoice(max_batch_size=int(takes_batches(artifact.interface)), instance_count=1)


async def serve_plainly_on(server: Server, root: Path, artifact: Artifact, model_name: str, inputs: Sequence[Tensors],
                           *, concurrency: int, objective: ObjectiveRequest, cores: int,
                           gpus: tuple[int, ...] = (), seconds: float = COMPARED_SECONDS[1]) -> Point:
    """Measured for ``seconds`` at most. ``root`` is where the server finds models; it has none of this one's
    afterwards."""
    shutil.rmtree(root / model_name, ignore_errors=True)
    serving = plain(artifact)
    folder = write_model(root, model_name, artifact, serving, cores=cores, gpus=gpus)
    try:
        requests = make_requests(model_name, inputs, serving.max_batch_size)
        bench = Bench(server=server, artifact=artifact, model_name=model_name, objective=objective, cores=cores,
                      gpus=gpus, point_seconds=seconds, requests=requests)
        point = await bench.point(serving, concurrency)
        await server.unload(model_name)
        return point
    finally:
        shutil.rmtree(folder, ignore_errors=True)
