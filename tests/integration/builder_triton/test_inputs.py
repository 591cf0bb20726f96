"""Small models with inputs of every kind, from the source to an answer of a real tritonserver, or refused by name."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import pytest_asyncio
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from enginewright_builder.contract import (
    AccuracyRequest,
    BatchingRequest,
    BuildRequest,
    DataRequest,
    DeviceRequest,
    EngineRequest,
    RuntimeRequest,
    ServingChoice,
    SourceRequest,
)
from enginewright_builder.engines.base import BuildContext, Rung
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.export import export_model
from enginewright_builder.load import Channels, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.models import load_model, tensorflow
from enginewright_builder.models.base import SourceModel
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.models.tensorflow import TensorflowModel
from enginewright_builder.pipeline import run_build
from enginewright_builder.pod import smoke
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.shapes import takes_batches
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Tensors, whole_call
from enginewright_builder.triton.prove import difference
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from enginewright_builder.wire import to_wire, wire_shape
from support.inputs import graphs, programs
from support.inputs.table import BATCHES, ENTRIES, Entry, Refused
from support.series_model import autoformer
from support.warm_tensorflow import Forks

pytestmark = [pytest.mark.triton]
SERVED = [entry for entry in ENTRIES if not isinstance(entry.served, Refused)]
REFUSED = [entry for entry in ENTRIES if isinstance(entry.served, Refused)]
BATCH = 3


@pytest.fixture(scope="module", autouse=True)
def warm_tensorflow() -> Iterator[None]:
    """These tests show what TensorFlow answers. test_tensorflow.py shows that TensorFlow gets a process of its own."""
    with Forks() as forks, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorflow, "subprocess", forks)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def empty_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[TritonServer, Path]]:
    root = tmp_path_factory.mktemp("repository")
    async with TritonServer(root) as server:
        yield server, root


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("entry", SERVED, ids=lambda entry: f"{entry.source}: {entry.name}")
async def test_served_as_the_source_answers(entry: Entry, empty_server: tuple[TritonServer, Path],
                                            tmp_path: Path) -> None:
    server, root = empty_server
    path = entry.make(tmp_path)
    source = load_model(locate(path), entry.interface, tmp_path)
    batched = takes_batches(source.interface)
    assert batched == (entry.served == BATCHES)
    assert any("joins no requests" in note for note in source.notes) != batched, "what takes no batches says why"
    name = f"m{SERVED.index(entry)}"
    _write(source, tmp_path, root, name)
    await server.load(name)
    async with Channels(server.grpc_url) as channels:
        for batch in (1, BATCH) if batched else (1,):
            sample = example_inputs(source.interface, batch, seed=5, vocabulary=source.vocabulary)
            sent = sample if batched else whole_call(sample)
            answers = decode(await channels.call(encode(name, to_wire(sent, batched=batched)).payload, 30.0))
            told = _of_the_source(path, _with_values(entry, sent), source)
            assert set(answers) == {spec.name for spec in source.interface.outputs}
            for output, answer in answers.items():
                assert answer.shape == wire_shape(told[output].shape or (1,), batched=batched)
                assert difference(answer, told[output]) < 1e-3
                assert answer.dtype == told[output].dtype
    await server.unload(name)


@pytest.mark.parametrize("entry", REFUSED, ids=lambda entry: f"{entry.source}: {entry.name}")
def test_refused_by_name(entry: Entry, tmp_path: Path) -> None:
    outcome = run_build(_request(entry.make(tmp_path), tmp_path), tmp_path / "scratch", _quiet())
    assert isinstance(entry.served, Refused)
    assert outcome.error is not None
    assert (outcome.error.family, outcome.error.reason) == ("user", entry.served.reason)
    assert entry.served.says in f"{outcome.error.message} {outcome.error.remedy}"
    assert outcome.error.field
    assert outcome.error.value


@pytest.mark.parametrize(("make", "evaluation"), [(graphs.voice, "calls"), (lambda: graphs.frozen_together(4), "rows")],
                         ids=["state", "frozen"])
def test_the_whole_build_of_what_takes_no_batches(make: Callable[[], onnx.ModelProto], evaluation: str,
                                                  tmp_path: Path) -> None:
    """Calibrated, gated, swept and proven call by call, and the replica's own smoke test passes."""
    onnx.save(make(), tmp_path / "model.onnx")
    for seed, name in enumerate(("evaluation", "calibration")):
        np.savez(tmp_path / name, **_samples(evaluation, seed))
    request = _request(tmp_path / "model.onnx", tmp_path, evaluation=str(tmp_path / "evaluation.npz"),
                       calibration=str(tmp_path / "calibration.npz"))
    outcome = run_build(request, tmp_path / "scratch", _quiet())
    assert outcome.error is None
    assert outcome.serving is not None
    assert (outcome.serving.max_batch_size, outcome.serving.preferred_batch_sizes) == (0, ())
    assert {one.precision for one in outcome.candidates if one.accuracy} == {"fp32", "int8-dynamic", "int8-static"}
    folder = tmp_path / "store" / outcome.fingerprint
    report = json.loads((folder / "build-report.json").read_text())
    assert any("the server joins no requests" in note for note in report["notes"])
    assert "max_batch_size: 0" in (folder / "model_repository/model/config.pbtxt").read_text()
    asyncio.run(_smoke(folder))


def test_the_whole_build_of_one_number_a_sample(tmp_path: Path) -> None:
    """Swept, proven and smoke tested, by the same samples in both ways that data may have them."""
    onnx.save(graphs.recommender(), tmp_path / "model.onnx")
    for seed, name in enumerate(("evaluation", "calibration")):
        random = np.random.default_rng(seed)
        wide = (400, 1) if seed else (400,)
        np.savez(tmp_path / name, user=random.integers(0, 50, wide), item=random.integers(0, 70, wide),
                 seen=random.normal(size=(400, 16)).astype(np.float32))
    request = _request(tmp_path / "model.onnx", tmp_path, evaluation=str(tmp_path / "evaluation.npz"),
                       calibration=str(tmp_path / "calibration.npz"))
    outcome = run_build(request, tmp_path / "scratch", _quiet())
    assert outcome.error is None
    assert outcome.serving is not None
    assert outcome.serving.max_batch_size == 4
    folder = tmp_path / "store" / outcome.fingerprint
    recorded = json.loads((folder / "smoke.json").read_text())
    assert {tensor["name"]: tensor["shape"] for tensor in (*recorded["inputs"], *recorded["outputs"])} == {
        "user": [1], "item": [1], "seen": [16], "score": [1], "shelf": [1]}
    asyncio.run(_smoke(folder))
    asyncio.run(_by_hand(folder, tmp_path))


def test_the_whole_build_of_what_is_exported_as_one_call_ran(tmp_path: Path) -> None:
    """From a Hugging Face folder that PyTorch exports neither with a free batch nor with a fixed one."""
    random = np.random.default_rng(0)
    np.savez(tmp_path / "evaluation", past_values=random.normal(size=(400, 14)).astype(np.float32),
             past_time_features=random.normal(size=(400, 14, 2)).astype(np.float32),
             past_observed_mask=(random.random((400, 14)) < 0.9).astype(np.float32))
    request = _request(autoformer(tmp_path / "source"), tmp_path, evaluation=str(tmp_path / "evaluation.npz"))
    request = dataclasses.replace(request, engine=dataclasses.replace(request.engine, precision="fp32"))
    outcome = run_build(request, tmp_path / "scratch", _quiet())
    assert outcome.error is None
    assert outcome.serving is not None
    assert outcome.serving.max_batch_size == 0
    folder = tmp_path / "store" / outcome.fingerprint
    report = json.loads((folder / "build-report.json").read_text())
    assert any("exported as one call of it ran" in note and "joins no requests" in note for note in report["notes"])
    recorded = json.loads((folder / "smoke.json").read_text())
    assert {tensor["name"]: tensor["shape"] for tensor in recorded["inputs"]} == {
        "past_values": [1, 14], "past_time_features": [1, 14, 2], "past_observed_mask": [1, 14]}
    asyncio.run(_smoke(folder))


def _program_without_onnx(path: Path) -> Path:
    """It solves a linear system for each sample, for which ONNX has no operator."""
    import torch

    class Solving(torch.nn.Module):
        def forward(self, matrix: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"solution": torch.linalg.solve(matrix + 9 * torch.eye(4), matrix.sum(-1))}

    free = {"matrix": {0: torch.export.Dim("batch", min=1, max=64)}}
    torch.export.save(torch.export.export(Solving().eval(), (torch.zeros(2, 4, 4),), dynamic_shapes=free), path)
    return path


def test_the_whole_build_of_what_has_no_onnx(tmp_path: Path) -> None:
    """PyTorch's own package is all that is built, and the server's Python backend answers as the source does."""
    path = _program_without_onnx(tmp_path / "model.pt2")
    np.savez(tmp_path / "evaluation", matrix=np.random.default_rng(0).normal(size=(400, 4, 4)).astype(np.float32))
    request = _request(path, tmp_path, evaluation=str(tmp_path / "evaluation.npz"))
    refused = run_build(request, tmp_path / "without", _quiet()).error
    assert refused is not None
    assert refused.reason == "ExportFailed"
    assert "own package serve it, which needs no ONNX: write spec.engine.backend: torch" in refused.remedy
    outcome = run_build(dataclasses.replace(request, runtime=RuntimeRequest(python_runtimes=("onnxruntime", "torch"))),
                        tmp_path / "scratch", _quiet())
    assert outcome.error is None
    assert [one.name for one in outcome.candidates] == ["torch fp32", "torch fp32 @1"]
    folder = tmp_path / "store" / outcome.fingerprint
    report = json.loads((folder / "build-report.json").read_text())
    assert any("PyTorch's own package, which needs no ONNX" in note for note in report["notes"])
    asyncio.run(_smoke(folder))


def test_the_whole_build_of_what_takes_texts(tmp_path: Path) -> None:
    onnx.save(graphs.words(), tmp_path / "model.onnx")
    random = np.random.default_rng(0)
    known = ["engine", "wright", "makes", "models", "fast", "Zürich", "", *(f"word {number}" for number in range(20))]
    for name in ("evaluation", "calibration"):
        lines = [json.dumps({"word": list(random.choice(known, 4))}) for _ in range(300)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    request = _request(tmp_path / "model.onnx", tmp_path, evaluation=str(tmp_path / "evaluation.jsonl"),
                       calibration=str(tmp_path / "calibration.jsonl"))
    outcome = run_build(request, tmp_path / "scratch", _quiet())
    assert outcome.error is None
    assert outcome.serving is not None
    assert outcome.serving.max_batch_size == 4
    assert {one.precision for one in outcome.candidates if one.accuracy} == {"fp32", "int8-dynamic", "int8-static"}


def _quiet() -> Tracker:
    return Tracker(JsonLines(io.StringIO()))


async def _smoke(folder: Path) -> None:
    recorded = json.loads((folder / "smoke.json").read_text())
    async with TritonServer(folder / "model_repository", models=("model",)) as server:
        port = int(server.address.http.rpartition(":")[2])
        assert len(await asyncio.to_thread(smoke.check, recorded, "model", port, 30.0)) == len(recorded["outputs"])


async def _by_hand(folder: Path, data: Path) -> None:
    """What users start themselves: the load generator, and a run over a whole data set."""
    async with TritonServer(folder / "model_repository", models=("model",)) as server:
        load = ("load", "--url", server.grpc_url, "--model", "model", "--inputs", data / "evaluation.npz", "--batch", 3,
                "--max-requests", 20, "--json")
        assert json.loads(await _printed(load))["failed"] == 0
        batch = ("batch", "--input", data / "evaluation.npz", "--output", data / "answers", "--model", "model",
                 "--engine", "a" * 64, "--http", server.address.http, "--grpc", server.address.grpc)
        assert json.loads((await _printed(batch)).splitlines()[-1])["shard"]["rows"] == 400


async def _printed(words: Sequence[object]) -> str:
    module, *options = map(str, words)
    program = "enginewright_builder.load" if module == "load" else "enginewright_builder"
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", program, *(
        options if module == "load" else [module, *options]), stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


def _samples(evaluation: str, seed: int) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(seed)
    if evaluation == "rows":
        return {"x": random.normal(size=(1600, 16)).astype(np.float32)}
    return {"sound": random.normal(size=(400, 32)).astype(np.float32),
            "state": random.normal(size=(400, 2, 1, 8)).astype(np.float32), "sr": np.full(400, 16000)}


def _request(path: Path, folder: Path, *, evaluation: str = "", calibration: str = "") -> BuildRequest:
    engine = EngineRequest(max_batch_size=4, build_budget_seconds=900, fallback="source",
                           calibration=DataRequest(uri=calibration) if calibration else None)
    return BuildRequest(model_name="model", source=SourceRequest(uri=str(path)), store_path=str(folder / "store"),
                        engine=engine, batching=BatchingRequest(preferred_batch_sizes=(2, 4), max_queue_delay_us=100),
                        accuracy=AccuracyRequest(tolerance=0.1, evaluation=DataRequest(uri=evaluation) if evaluation
                                                 else None))


def _write(source: SourceModel, folder: Path, root: Path, name: str) -> None:
    """As a build writes an engine in full precision."""
    exported = export_model(source, folder / "export", [example_inputs(source.interface, 1, seed=1,
                                                                       vocabulary=source.vocabulary)])
    context = BuildContext(device=DeviceRequest(), runtime=RuntimeRequest(), max_batch_size=4, calibration=(),
                           workspace=folder / "work", progress=lambda fraction, detail: None)
    artifact = OnnxRuntimeEngine().build(Rung(backend="onnxruntime", precision="fp32"), exported, context)
    warmup = example_inputs(source.interface, 1, vocabulary=source.vocabulary)
    batched = takes_batches(source.interface)
    write_model(root, name, artifact, ServingChoice(max_batch_size=4 * batched), cores=1,
                warmup=warmup if batched else whole_call(warmup))


def _with_values(entry: Entry, sent: Tensors) -> Tensors:
    """What the source takes: the user's values beside what clients send."""
    stated = entry.interface.inputs if entry.interface else ()
    return {**sent, **{spec.name: np.array(spec.value, spec.dtype) for spec in stated if spec.value}}


def _of_the_source(path: Path, sent: Tensors, source: SourceModel) -> dict[str, NDArray[Any]]:
    if path.suffix == ".onnx":
        return _of_the_file(path, sent)
    if isinstance(source, TensorflowModel):
        if takes_batches(source.interface):
            return dict(source.run(sent))
        one = source.run({name: array[None] for name, array in sent.items()})
        return {name: array[0] for name, array in one.items()}
    names = [output.name for output in source.interface.outputs]
    return dict(zip(names, programs.answers(path, dict(sent)), strict=True))


def _of_the_file(path: Path, sent: Tensors) -> dict[str, NDArray[Any]]:
    """What ONNX Runtime answers with the user's file, batch by batch of the size that it is frozen to."""
    if onnx.load(path).opset_import[0].version < 7:  # ONNX Runtime has no kernels for it
        reference = ReferenceEvaluator(str(path))
        return dict(zip(reference.output_names, reference.run(None, dict(sent)), strict=True))
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    sizes = [value.type.tensor_type.shape.dim for value in onnx.load(path).graph.input]
    fixed = next((dims[0].dim_value for dims in sizes if dims and dims[0].dim_value > 0), 0)
    given = {value.name: sent[value.name].reshape(()) if not value.shape else sent[value.name]
             for value in session.get_inputs()}
    rows = len(next(iter(sent.values())))
    if fixed and rows != fixed and all(len(array) == rows for array in sent.values()):
        whole = {name: np.resize(array, (-(-rows // fixed) * fixed, *array.shape[1:])) for name, array in given.items()}
        parts = [session.run(names, {name: array[start:start + fixed] for name, array in whole.items()})
                 for start in range(0, rows, fixed)]
        return {name: np.concatenate([part[place] for part in parts])[:rows] for place, name in enumerate(names)}
    return dict(zip(names, map(_tensor, session.run(names, given)), strict=True))


def _tensor(answer: Any) -> NDArray[Any]:
    """Of maps their values: a row for each sample."""
    maps = isinstance(answer, list) and isinstance(answer[0], dict)
    return np.array([[*one.values()] for one in answer], np.float32) if maps else np.asarray(answer)
