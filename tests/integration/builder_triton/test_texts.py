"""Clients send texts to a real tritonserver, and are answered as the source answers behind its own tokenizer."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
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
    Interface,
    Preprocess,
    SourceRequest,
    TensorSpec,
)
from enginewright_builder.evidence.joining import counted
from enginewright_builder.load import Channels, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.pipeline import run_build
from enginewright_builder.pod import smoke
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.quality.reference import read_about
from enginewright_builder.triton.model_config import parse_text
from enginewright_builder.triton.server import TritonServer
from support.apiserver import eventually
from support.text_models import answers, classifier

pytestmark = [pytest.mark.triton, pytest.mark.torch]
SENTENCES = ["the nurse waited for the rain.", "", "Zürich", "a key of the city was lost in the rain. " * 9, "the"]


def request(source: Path, folder: Path, shape: tuple[int | str, ...] = (), **more: Any) -> BuildRequest:
    sent = TensorSpec(name="text", dtype="string", shape=shape, preprocess=Preprocess(from_source=True))
    return BuildRequest(
        model_name="bert", source=SourceRequest(uri=str(source)), store_path=str(folder / "store"),
        interface=Interface(inputs=(sent,)),
        engine=EngineRequest(backend="onnxruntime", precision="fp32", fallback="source", max_batch_size=4,
                             build_budget_seconds=900),
        batching=BatchingRequest(preferred_batch_sizes=(2, 4), max_queue_delay_us=100),
        **{"accuracy": AccuracyRequest(tolerance=0.1), **more})


def built(asked: BuildRequest, scratch: Path) -> Path:
    outcome = run_build(asked, scratch, Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None
    return Path(asked.store_path) / outcome.fingerprint


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source, and its published engine."""
    folder = tmp_path_factory.mktemp("texts")
    source, data = classifier(folder / "bert"), folder / "evaluation.jsonl"
    data.write_text("\n".join(json.dumps({"text": f"the nurse {number} waited " * (1 + number % 5)})
                              for number in range(64)))
    evaluation = AccuracyRequest(tolerance=0.1, evaluation=DataRequest(uri=str(data)))
    return source, built(request(source, folder, accuracy=evaluation, keep_reference=True), folder / "scratch")


def test_the_whole_build_of_texts(mixed: tuple[Path, Path]) -> None:
    source, folder = mixed
    config = parse_text((folder / "model_repository/model/config.pbtxt").read_text())
    asked, = config.input
    assert (asked.name, asked.data_type, list(asked.dims)) == ("text", 13, [1]), "TYPE_STRING, one a row"
    assert config.backend == "python"
    assert read_about(folder / "reference").problem == "answers to texts are not compared: text"
    report = json.loads((folder / "build-report.json").read_text())
    best, engine = report["sweep"]["best"], report["engine"]
    layers = best["layers"]
    assert layers["preprocess_ms"] > 0, "the tokenizer, as the replica counts it"
    assert layers["postprocess_ms"] is None
    assert (engine["mean_ms"], engine["pre_ms"]) == (best["mean_ms"], layers["preprocess_ms"]), "as the operator reads"
    assert "post_ms" not in engine
    asyncio.run(_served(folder, source, source.parent / "evaluation.jsonl"))


async def _served(folder: Path, source: Path, data: Path) -> None:
    recorded = json.loads((folder / "smoke.json").read_text())
    assert recorded["inputs"][0]["datatype"] == "BYTES"
    async with (TritonServer(folder / "model_repository", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        port = int(server.address.http.rpartition(":")[2])
        assert await asyncio.to_thread(smoke.check, recorded, "model", port, 30.0)
        expected = answers(source, SENTENCES)
        found = await _asked(channels, [[text] for text in SENTENCES[:4]])
        assert np.linalg.norm(found - expected[:4]) < 0.01 * np.linalg.norm(expected[:4]), "in one batch"
        for text, wanted in zip(SENTENCES, expected, strict=True):
            answer = (await _asked(channels, [[text]]))[0]
            assert np.linalg.norm(answer - wanted) < 0.01 * np.linalg.norm(wanted)
        figures = await asyncio.to_thread(_loaded, server.grpc_url, data)
        assert figures["requests"] > figures["failed"] == 0
        # Triton may join these: the request that cannot be read gets an error, and the others get answers.
        asked = (_asked(channels, [["the"]]), _asked(channels, [[b"the\xff"]]))
        answered: tuple[Any, Any] = await asyncio.gather(*asked, return_exceptions=True)
        good, bad = answered
        assert isinstance(good, np.ndarray)
        assert isinstance(bad, grpc.aio.AioRpcError)
        assert "text 0 is no UTF-8: invalid start byte at byte 3" in str(bad.details())


def _loaded(url: str, data: Path) -> dict[str, Any]:
    """The load generator takes the evaluation data as it is."""
    done = subprocess.run([sys.executable, "-m", "enginewright_builder.load", "--url", url, "--model", "model",
                           "--jsonl", str(data), "--closed", "4", "--seconds", "20", "--max-requests", "40", "--json"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def _asked(channels: Channels, texts: Sequence[Sequence[Any]]) -> Any:
    return decode(await channels.call(encode("model", {"text": np.array(texts, np.object_)}).payload, 30.0))["logits"]


@pytest.mark.parametrize("run_positions", [0.0, 1e9], ids=["a run costs nothing", "a run costs more than any padding"])
async def test_texts_are_cut_into_groups_by_length(mixed: tuple[Path, Path], run_positions: float, tmp_path: Path
                                                   ) -> None:
    """By the rule with what a run costs: each length by itself, or all texts in one run."""
    source, folder = mixed
    shutil.copytree(folder / "model_repository/model", tmp_path / "model")
    engines = tmp_path / "model/1/engines.json"
    described = json.loads(engines.read_text())
    assert (described["lengths"]["mask"], described["lengths"]["cut"]) == ("attention_mask", {})
    described["lengths"]["run_positions"] = run_positions
    engines.write_text(json.dumps(described))
    expected = answers(source, SENTENCES)
    async with (TritonServer(tmp_path, models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        before = await server.statistics("model")
        assert close(await _asked(channels, [[text] for text in SENTENCES[:4]]), expected[:4])

        async def once() -> bool:  # by Triton, once the answer is sent
            after = await server.statistics("model")
            return bool(after["execution_count"] - before["execution_count"] == 1)

        await eventually(once)
        own, padding = 0.0, 0.0
        # The replica tells what it counted a few times a second. Texts of several requests, too, run together.
        while not own or bool(padding) != bool(run_positions):
            found = await asyncio.gather(_asked(channels, [[text] for text in SENTENCES[:4]]),
                                         *(_asked(channels, [[text]]) for text in SENTENCES))
            assert close(np.concatenate(found), np.concatenate([expected[:4], expected]))
            own, padding = counted(await server.metrics())
            assert run_positions or not padding, "each length runs by itself"


def close(found: Any, expected: Any) -> bool:
    return bool(np.linalg.norm(found - expected) < 0.01 * np.linalg.norm(expected))


def test_pairs_of_texts_are_ranked(tmp_path: Path) -> None:
    source = classifier(tmp_path / "bert")
    folder = built(request(source, tmp_path, ("batch", 2)), tmp_path / "scratch")
    asyncio.run(_pairs(folder, source))


async def _pairs(folder: Path, source: Path) -> None:
    async with (TritonServer(folder / "model_repository", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        first, second = SENTENCES[:4], SENTENCES[1:]
        found = await _asked(channels, list(zip(first, second, strict=True)))
        expected = answers(source, first, second)
        assert np.linalg.norm(found - expected) < 0.01 * np.linalg.norm(expected)
