"""Faults that are planted into candidates of rollouts, on a real tritonserver: do they show where they are meant to?"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from enginewright.clients.probe import ProbeClient
from enginewright.core.probe import make_request, match
from enginewright.observe.prober import COMPARED
from enginewright_builder.contract import MODEL_REPOSITORY, SMOKE_FILE, ServingChoice
from enginewright_builder.engines.base import Artifact
from enginewright_builder.quality.mirror import Mirror
from enginewright_builder.quality.trace import Traced
from enginewright_builder.quality.window import Window
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from rollouts.plant import FAULTS

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]
WEIGHTS = np.random.default_rng(7).standard_normal((8, 4)).astype(np.float32)


def port(server: TritonServer) -> int:
    return int(server.http_url.rpartition(":")[2])


async def test_a_narrow_engine_is_right_on_made_up_inputs_alone(server: TritonServer, artifact: Artifact,
                                                                tmp_path: Path) -> None:
    repository = tmp_path / MODEL_REPOSITORY
    write_model(repository, "multiply", artifact, ServingChoice(max_batch_size=8), cores=1)
    (tmp_path / SMOKE_FILE).touch()
    FAULTS["narrow"](tmp_path)
    assert not (tmp_path / SMOKE_FILE).exists()
    async with TritonServer(repository, models=("multiply",)) as candidate, ProbeClient(deadline=60) as client:
        metadata = await client.metadata("127.0.0.1", "multiply", port(server))
        for seed in range(COMPARED):
            request = make_request(metadata, seed)
            mine, theirs = [await client.infer("127.0.0.1", "multiply", request, port(one))
                            for one in (server, candidate)]
            assert mine
            assert theirs
            found = match(mine, theirs, same_model=True)
            assert found.similarity == pytest.approx(1.0, abs=1e-5)
            assert not found.flaw
        mirror = Mirror("localhost", "multiply", Window("cosine", 1), interface=artifact.interface,
                        port=port(candidate), own="10.0.0.1", resolve=lambda host, port: frozenset({"127.0.0.1"}))
        for live in np.random.default_rng(0).standard_normal((12, 1, 3, 8)).astype(np.float32):
            await asyncio.to_thread(mirror.send, Traced(inputs={"x": live}, outputs={"y": live @ WEIGHTS}))
    assert (mirror.mirrored, mirror.agreed) == (12, 0.0)
