"""Functions of the user's own before and behind an engine: from the source's folder to an answer of a real tritonserver
that is the client's own."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import pytest

from enginewright_builder.contract import (
    AccuracyRequest,
    BatchingRequest,
    BuildRequest,
    DataRequest,
    EngineRequest,
    ErrorReport,
    Interface,
    SourceRequest,
)
from enginewright_builder.load import Channels, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.pipeline import run_build
from enginewright_builder.pod import smoke
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.sweep.bench import window
from enginewright_builder.triton.model_config import parse_text
from enginewright_builder.triton.own_metrics import STEPPED, total
from enginewright_builder.triton.server import TritonServer
from support.own_steps import BOTH, STEPS, TEXTS, client, evaluation, folder, runner

pytestmark = pytest.mark.triton


def request(source: Path, scratch: Path, interface: Interface = BOTH) -> BuildRequest:
    data = evaluation(scratch / "evaluation.jsonl")
    return BuildRequest(
        model_name="words", source=SourceRequest(uri=str(source)), store_path=str(scratch / "store"),
        interface=interface,
        engine=EngineRequest(backend="onnxruntime", precision="fp32", fallback="source", max_batch_size=4,
                             build_budget_seconds=600),
        batching=BatchingRequest(preferred_batch_sizes=(2, 4), max_queue_delay_us=100),
        accuracy=AccuracyRequest(tolerance=0.1, evaluation=DataRequest(uri=str(data))))


def test_from_the_folder_to_the_clients_own_answers(tmp_path: Path) -> None:
    """As in a Job: it has a key, and the functions run in another container."""
    (keys := tmp_path / "keys").mkdir()
    (keys / "key").write_text("k" * 64)
    asked = dataclasses.replace(request(folder(tmp_path / "source"), tmp_path), signing_keys=str(keys),
                                steps_socket=str(tmp_path / "socket"))
    with runner(tmp_path / "socket"):
        outcome = run_build(asked, tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None
    engine = Path(asked.store_path) / outcome.fingerprint
    config = parse_text((engine / "model_repository/model/config.pbtxt").read_text())
    assert [one.name for one in config.input] == ["text"]
    assert [one.name for one in config.output] == ["label", "scores"]
    best = json.loads((engine / "build-report.json").read_text())["sweep"]["best"]
    assert best["layers"]["preprocess_ms"] > 0, "as the replica counts it"
    assert best["layers"]["postprocess_ms"] > 0
    assert outcome.engine is not None
    assert (outcome.engine.pre_ms, outcome.engine.post_ms) == (best["layers"]["preprocess_ms"],
                                                               best["layers"]["postprocess_ms"])
    asyncio.run(_served(engine))


async def _served(engine: Path) -> None:
    recorded = json.loads((engine / "smoke.json").read_text())
    assert [one["datatype"] for one in recorded["outputs"]] == ["BYTES", "FP32"]
    async with (TritonServer(engine / "model_repository", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        port = int(server.address.http.rpartition(":")[2])
        assert await asyncio.to_thread(smoke.check, recorded, "model", port, 30.0)
        labels, scores = client(TEXTS)
        for texts in ([TEXTS], [[text] for text in TEXTS]):
            found = await asyncio.gather(*(_asked(channels, each) for each in texts))
            assert [label for one in found for label in one["label"][:, 0]] == labels
            np.testing.assert_allclose(np.concatenate([one["scores"] for one in found]), scores, rtol=1e-4, atol=1e-4)
        # Triton may join these: the request that breaks the function gets an error, and the other one its answer.
        answered: tuple[Any, Any] = await asyncio.gather(_asked(channels, TEXTS[:1]), _asked(channels, ["break"]),
                                                         return_exceptions=True)
        good, bad = answered
        assert good["label"][0, 0] == labels[0]
        assert isinstance(bad, grpc.aio.AioRpcError)
        assert "LookupError: this text breaks the function" in str(bad.details())
        assert total(await server.metrics(), STEPPED) > 0
        # Much shorter than the replica waits between two reports.
        sent = encode("model", {"text": np.array(TEXTS[:1], np.object_)[:, None]})
        short = await window(server, "model", [sent], concurrency=1, seconds=0.01, warmup_seconds=0.01)
        assert short.layers.preprocess_ms is not None


async def _asked(channels: Channels, texts: list[str]) -> Any:
    sent = {"text": np.array(texts, np.object_)[:, None]}
    return decode(await channels.call(encode("model", sent).payload, 30.0))


BREAKS = STEPS.replace("def bag(inputs):", "def bag(inputs):\n    inputs['missing']")


@pytest.mark.parametrize(("steps", "says", "field"), [
    (BREAKS, "steps.py:bag fails: KeyError: 'missing' (steps.py, line 13)", "spec.interface.pythonSteps.preprocess"),
    (STEPS.replace('{"bag": made}', '{"words": made}'), "preprocess steps.py:bag gives words; return bag",
     "spec.interface.pythonSteps.preprocess"),
    (STEPS.replace("np.float32", "np.float64"), "bag is float64; return float32",
     "spec.interface.pythonSteps.preprocess"),
    (STEPS.replace("[[NAMES[one]] for", "[NAMES[one] for"), "label has the shape",
     "spec.interface.pythonSteps.postprocess"),
    ("import no_such_library\n" + STEPS, "do not load: steps.py does not import: ModuleNotFoundError: No module named "
     "'no_such_library'", "spec.interface.pythonSteps"),
    ("import os\n" + STEPS.replace("def bag(inputs):", "def bag(inputs):\n    os._exit(7)"),
     "ended its process with status 7", "spec.interface.pythonSteps.preprocess"),
])
def test_a_function_that_is_broken_ends_the_build(steps: str, says: str, field: str, tmp_path: Path) -> None:
    asked = request(folder(tmp_path / "source", steps), tmp_path)
    outcome = run_build(asked, tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert isinstance(outcome.error, ErrorReport)
    assert (outcome.error.reason, outcome.error.field) == ("StepInvalid", field)
    assert says in outcome.error.message
    assert "mend the f" in outcome.error.remedy
