"""A real tritonserver answers with one embedding a text, and with the best class of each token, where the source has
vectors of tokens."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import (
    AccuracyRequest,
    BatchingRequest,
    BuildRequest,
    EngineRequest,
    Interface,
    PostprocessStep,
    SourceRequest,
)
from enginewright_builder.load import Channels, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.pipeline import run_build
from enginewright_builder.pod import smoke
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.triton.model_config import parse_text
from enginewright_builder.triton.server import TritonServer

pytestmark = [pytest.mark.triton]
STEPS = tuple(PostprocessStep(output="tokens", function=function, mask=mask)  # type: ignore[arg-type]
              for function, mask in (("meanPooling", "attention_mask"), ("l2Normalise", "")))
BEST = PostprocessStep(output="tags", function="argMax")
TABLE = np.random.default_rng(0).standard_normal((500, 16)).astype(np.float32)


def encoder(folder: Path) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
         helper.make_node("Mul", ["tokens", "two"], ["tags"])], "net",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
         for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "length", 16])
         for name in ("tokens", "tags")],
        [numpy_helper.from_array(TABLE, "table"), numpy_helper.from_array(np.array(2.0, np.float32), "two")])
    # The mask is an input that the graph itself does not look at.
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    return folder / "m.onnx"


def test_the_whole_build_of_embeddings_and_classes(tmp_path: Path) -> None:
    request = BuildRequest(
        model_name="sentences", source=SourceRequest(uri=str(encoder(tmp_path))), store_path=str(tmp_path / "store"),
        interface=Interface(postprocess=(*STEPS, BEST)),
        engine=EngineRequest(precision="fp32", max_batch_size=4, build_budget_seconds=900),
        accuracy=AccuracyRequest(tolerance=0.1),
        batching=BatchingRequest(preferred_batch_sizes=(2, 4), max_queue_delay_us=100))
    outcome = run_build(request, tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None
    folder = tmp_path / "store" / outcome.fingerprint
    config = parse_text((folder / "model_repository/model/config.pbtxt").read_text())
    assert [(one.name, list(one.dims)) for one in config.output] == [("tokens", [16]), ("tags", [-1])]
    asyncio.run(_served(folder))


async def _served(folder: Path) -> None:
    recorded = json.loads((folder / "smoke.json").read_text())
    async with (TritonServer(folder / "model_repository", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        port = int(server.address.http.rpartition(":")[2])
        assert await asyncio.to_thread(smoke.check, recorded, "model", port, 30.0)
        for seed, length in enumerate((1, 7, 30)):
            rng = np.random.default_rng(seed)
            ids, kept = rng.integers(0, 500, (3, length)), rng.integers(1, length + 1, 3)
            mask = (np.arange(length) < kept[:, None]).astype(np.int64)
            answers = decode(await channels.call(
                encode("model", {"input_ids": ids, "attention_mask": mask}).payload, 30.0))
            answer = answers["tokens"]
            mean = np.stack([TABLE[row[:count]].mean(axis=0) for row, count in zip(ids, kept, strict=True)])
            expected = mean / np.linalg.norm(mean, axis=1, keepdims=True)
            assert np.linalg.norm(answer - expected) < 0.1 * np.linalg.norm(expected)
            np.testing.assert_array_equal(answers["tags"], TABLE[ids].argmax(axis=-1))


def test_a_step_of_no_output_is_refused_before_the_build(tmp_path: Path) -> None:
    request = BuildRequest(model_name="sentences", source=SourceRequest(uri=str(encoder(tmp_path))),
                           interface=Interface(postprocess=(PostprocessStep(output="logits", function="softmax"),)))
    outcome = run_build(request, tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is not None
    assert (outcome.error.reason, outcome.error.field) == ("InterfaceInvalid", "spec.interface.postprocess[0].output")

