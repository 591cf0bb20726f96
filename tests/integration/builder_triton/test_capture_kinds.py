"""Requests with bytes, texts, halves and different lengths, from a tritonserver through its monitor's tap to a file
that is read as evaluation data of the same model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from enginewright_builder.contract import AccuracyRequest, ServingChoice
from enginewright_builder.data.files import check_against, read_samples
from enginewright_builder.engine_store.captures import captures_of, whole
from enginewright_builder.engine_store.signing import Keys
from enginewright_builder.engines.base import Artifact, ExportedModel, Rung
from enginewright_builder.load import Channels, encode
from enginewright_builder.onnx_interface import graph_interface
from enginewright_builder.quality.capture import CaptureRules, Capturing
from enginewright_builder.quality.kept import keep_reference
from enginewright_builder.quality.monitor import Monitor
from enginewright_builder.quality.reference import Reference, read_about
from enginewright_builder.quality.tap import Tap
from enginewright_builder.quality.trace import Expected
from enginewright_builder.quality.window import Window
from enginewright_builder.shapes import takes_batches
from enginewright_builder.tensors import Array, Tensors
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from enginewright_builder.wire import to_wire
from support.apiserver import eventually
from support.inputs.graphs import matrix, model, node, recommender, value, words

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]
OF, KEYS, REQUESTS = "prod/net", Keys(current=b"k" * 64), 12
HALF, U8, I8 = TensorProto.FLOAT16, TensorProto.UINT8, TensorProto.INT8


def cast(sent: int, answered: int) -> onnx.ModelProto:
    """A sum over bytes of any length."""
    return model([node("Cast", "x", "wide", to=TensorProto.FLOAT), node("MatMul", "wide w", "product"),
                  node("ReduceSum", "product along", "sums", keepdims=0), node("Cast", "sums", "y", to=answered)],
                 [value("x", sent, ["batch", "length", 3])], [value("y", answered, ["batch", 4])],
                 {"w": matrix(3, 4), "along": np.array([1])})


def counted(sent: type) -> Callable[[int], Tensors]:
    """Each request of another length, with each byte that may break a trace."""
    def made(index: int) -> Tensors:
        values: Array = np.array([*b'",\\\n\x00', -1, index], np.int64).astype(sent)
        return {"x": np.resize(values, (1 + index % 2, 1 + index % 5, 3))}
    return made


def said(index: int) -> Tensors:
    texts: Array = np.array([["engine", 'say "a", \\b', f"{index}\n", "é"]], np.object_)
    return {"word": texts}


def visited(index: int) -> Tensors:
    """In the model's own shapes."""
    rows = 1 + index % 2
    return {"user": np.arange(rows) + index, "item": np.arange(rows) * index,
            "seen": np.full((rows, 16), index / 4, np.float32)}


@dataclass(frozen=True)
class Kind:
    graph: Callable[[], onnx.ModelProto]
    request: Callable[[int], Tensors]
    scored: bool = True


KINDS: Mapping[str, Kind] = {
    "uint8 of different length": Kind(lambda: cast(U8, TensorProto.FLOAT), counted(np.uint8)),
    "int8, answered in float16": Kind(lambda: cast(I8, HALF), counted(np.int8), scored=False),
    "texts": Kind(words, said, scored=False),
    "one number a sample": Kind(recommender, visited),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_what_was_sent_is_captured_as_it_was(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(kind.graph(), path)
    interface = graph_interface(onnx.load(path))
    artifact = Artifact(rung=Rung(backend="onnxruntime", precision="fp32"), files={"model.onnx": path},
                        triton_backend="python", interface=interface, runtime_version="onnxruntime")
    write_model(tmp_path / "repository", "net", artifact, ServingChoice(max_batch_size=8), cores=1)
    keep_reference(tmp_path, ExportedModel(path=path, interface=interface, opset=17), AccuracyRequest(), None)
    traces, folder = tmp_path / "traces", captures_of(tmp_path / "store", OF)
    traces.mkdir()
    folder.mkdir(parents=True)
    options = ("--trace-config=mode=triton", f"--trace-config=triton,file={traces}/trace.json")
    async with TritonServer(tmp_path / "repository", models=("net",), options=options) as server:
        about, now = read_about(tmp_path / "reference"), [0.0]
        tap = Tap("net", traces, share=1.0, per_minute=600, port=int(server.http_url.rpartition(":")[2]),
                  expected=Expected.of(about.interface))
        rules = CaptureRules(of=OF, revision="abc12345", samples=100, most_bytes=1 << 20, interval=900.0,
                             retention=9000.0)
        monitor = Monitor(about if about.problem else Reference(tmp_path / "reference", about, 1), tap,
                          Window("cosine", 100), lambda: 0.0,
                          capturing=Capturing(folder, rules, KEYS, lambda: now[0],
                                              batched=takes_batches(about.interface)))
        await asyncio.to_thread(monitor.look)
        async with Channels(server.grpc_url) as channels:
            for index in range(REQUESTS):
                await channels.call(encode("net", to_wire(kind.request(index), batched=True)).payload, 30.0)

        async def written() -> bool:
            assert sum(path.read_bytes().endswith(b"]") for path in traces.iterdir()) == REQUESTS
            return True

        await eventually(written, 60)
        await asyncio.to_thread(monitor.look)
        now[0] = 901.0
        await asyncio.to_thread(monitor.look)
    told = monitor.snapshot()
    assert (told.skipped, told.report.requests) == (0, REQUESTS)
    assert told.report.samples == (REQUESTS if kind.scored else 0)
    assert not kind.scored or told.report.total == pytest.approx(REQUESTS)
    assert bool(told.report.problem) is not kind.scored
    [capture] = whole(folder, OF, KEYS, now[0])
    read = check_against(read_samples(capture.folder / capture.about.file, words=True), interface)
    sent = [{name: array[row] for name, array in kind.request(index).items()}
            for index in range(REQUESTS) for row in range(len(next(iter(kind.request(index).values()))))]
    assert sorted(map(told_of, read.rows)) == sorted(map(told_of, sent))


def told_of(row: Mapping[str, Array]) -> str:
    return repr({name: (array.dtype.name, array.tolist()) for name, array in row.items()})
