"""Engines of several runtimes on a real tritonserver: each batch is answered by the engine that it belongs to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from enginewright.clients.triton import parse_metrics
from enginewright_builder.contract import DeviceRequest, Interface, RuntimeRequest, ServingChoice, TensorSpec
from enginewright_builder.engines.base import Artifact, BuildContext, ExportedModel, Member, Rung
from enginewright_builder.engines.composite import CompositeRunner, combine
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.load import Channels, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.triton.own_metrics import FAILED, total
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from support.apiserver import eventually
from support.picks import picks

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]
INTERFACE = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 3)),),
                      outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 3)),))
# What the member for batches up to the key adds to its input, so that its answer tells who answered.
ADDED = {1: 10.0, 4: 20.0, 8: 30.0}


def adds(folder: Path, number: float) -> Artifact:
    """An ONNX whose weight lies in a file beside it, as a large one's does."""
    folder.mkdir()
    graph = helper.make_graph([helper.make_node("Add", ["x", "number"], ["y"])], "add",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
                              [numpy_helper.from_array(np.full(3, number, np.float32), "number")])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path,
              save_as_external_data=True, location="weights.bin", size_threshold=0)
    return Artifact(rung=Rung(backend="onnxruntime", precision="fp32"), triton_backend="python", interface=INTERFACE,
                    files={file.name: file for file in sorted(folder.iterdir())}, runtime_version="onnxruntime")


@pytest.fixture
def composite(tmp_path: Path) -> Artifact:
    return combine([Member(up_to=up_to, artifact=adds(tmp_path / f"adds-{up_to}", number))
                    for up_to, number in ADDED.items()])


async def ask(channels: Channels, x: NDArray[Any]) -> NDArray[Any]:
    return decode(await channels.call(encode("adds", {"x": x}).payload, 30.0))["y"]


def expected(batch: int) -> float:
    return next(number for up_to, number in ADDED.items() if batch <= up_to)


async def test_each_batch_is_answered_by_its_member(composite: Artifact, tmp_path: Path) -> None:
    write_model(tmp_path / "root", "adds", composite, ServingChoice(max_batch_size=8), cores=1,
                warmup={"x": np.zeros((1, 3), np.float32)})
    runner = CompositeRunner(composite, [OnnxRuntimeEngine()])
    async with (TritonServer(tmp_path / "root", models=("adds",)) as server,
                Channels(server.grpc_url) as channels):
        for batch in range(1, 9):
            x = np.zeros((batch, 3), np.float32)
            assert np.all(await ask(channels, x) == expected(batch)), batch
            assert np.all(runner({"x": x})["y"] == expected(batch)), batch
        with pytest.raises(grpc.aio.AioRpcError, match="batch-size must be <= 8"):
            await ask(channels, np.zeros((9, 3), np.float32))
    with pytest.raises(ValueError, match="above the largest"):
        runner({"x": np.zeros((9, 3), np.float32)})
    runner.close()


async def test_requests_that_wait_together_go_to_the_member_of_their_sum(composite: Artifact, tmp_path: Path) -> None:
    """A single request belongs to the first member; joined ones to the member of the joined batch."""
    write_model(tmp_path / "root", "adds", composite, ServingChoice(max_batch_size=8, max_queue_delay_us=200_000),
                cores=1)
    async with (TritonServer(tmp_path / "root", models=("adds",)) as server,
                Channels(server.grpc_url) as channels):
        answers = await asyncio.gather(*(ask(channels, np.full((1, 3), index, np.float32)) for index in range(8)))
        members = {float(answer[0, 0]) - index for index, answer in enumerate(answers)}
        assert members <= set(ADDED.values())
        assert members & {20.0, 30.0}, "no two requests were joined"


async def test_triton_counts_what_the_engine_fails_on(tmp_path: Path) -> None:
    """It counts an error as an answer as a success, so a call on which the engine fails altogether fails itself."""
    write_model(tmp_path / "root", "picks", picks(tmp_path / "picks"), ServingChoice(max_batch_size=4), cores=1)
    good, bad = (encode("picks", {"x": np.array([[number]], np.int64)}).payload for number in (1, 9))
    async with (TritonServer(tmp_path / "root", models=("picks",)) as server,
                Channels(server.grpc_url) as channels):
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError, match="indices element out of data bounds") as failed:
                await channels.call(bad, 30.0)
            assert failed.value.code() is grpc.StatusCode.INTERNAL
            assert "ort_session.py" not in str(failed.value.details())
        assert decode(await channels.call(good, 30.0))["y"] == 6

        async def counted() -> bool:  # after the answer is sent
            page = await server.metrics()
            return (total(page, "nv_inference_request_success"), total(page, "nv_inference_request_failure")) == (1, 3)

        await eventually(counted)


async def test_a_failure_beside_answers_is_counted_though_triton_counts_a_success(tmp_path: Path) -> None:
    """Four requests that wait for each other run together, and the engine fails on one of them."""
    write_model(tmp_path / "root", "picks", picks(tmp_path / "picks"),
                ServingChoice(max_batch_size=4, max_queue_delay_us=1_000_000), cores=1)
    payloads = [encode("picks", {"x": np.array([[number]], np.int64)}).payload for number in (0, 9, 1, 2)]
    sent = failed = 0
    async with (TritonServer(tmp_path / "root", models=("picks",)) as server,
                Channels(server.grpc_url) as channels):

        async def some_failed_beside_answers() -> bool:
            nonlocal sent, failed
            answers = await asyncio.gather(*(channels.call(one, 30.0) for one in payloads), return_exceptions=True)
            sent, failed = sent + len(answers), failed + sum(isinstance(one, Exception) for one in answers)
            return total(await server.metrics(), FAILED) > 0

        async def all_are_counted() -> bool:  # Triton counts after the answer is sent
            found = parse_metrics((await server.metrics()).encode())
            return found.answered == sent - failed and found.broken == failed

        assert total(await server.metrics(), FAILED) == 0
        await eventually(some_failed_beside_answers)
        await eventually(all_are_counted)
        assert failed == sent / 4
        page = await server.metrics()
        assert total(page, "nv_inference_request_success") > sent - failed
        assert 'enginewright_failed_requests_total{fault="backend",model="picks",version="1"}' in page


@pytest.mark.torch
@pytest.mark.timeout(1200)
async def test_compiled_pytorch_is_served_and_joins_requests(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from enginewright_builder.engines.torch_aoti import TorchEngine
    from enginewright_builder.models.torch_base import TorchModel

    class Doubles(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x * 2 + 1

    source = TorchModel(Doubles(), INTERFACE, name="doubles")
    context = BuildContext(device=DeviceRequest(), runtime=RuntimeRequest(python_runtimes=("torch",)),
                           max_batch_size=8, calibration=(), workspace=tmp_path, source=source,
                           progress=lambda fraction, detail: None)
    rung, = TorchEngine().rungs("fp32", context)
    artifact = TorchEngine().build(rung, ExportedModel(path=tmp_path, interface=INTERFACE, opset=18), context)
    write_model(tmp_path / "root", "adds", artifact, ServingChoice(max_batch_size=8, max_queue_delay_us=100_000),
                cores=1, warmup={"x": np.zeros((1, 3), np.float32)})
    async with (TritonServer(tmp_path / "root", models=("adds",)) as server,
                Channels(server.grpc_url) as channels):
        questions = [np.full((1 + index % 3, 3), index, np.float32) for index in range(8)]
        answers = await asyncio.gather(*(ask(channels, x) for x in questions))
        for x, y in zip(questions, answers, strict=True):
            np.testing.assert_allclose(y, x * 2 + 1)
        statistics = await server.statistics("adds")
        assert statistics["execution_count"] < statistics["inference_count"], "no two requests shared an execution"


async def test_libraries_on_the_python_path_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stub's interpreter does not read the variable itself."""
    library = tmp_path / "site" / "only_on_the_path.py"
    library.parent.mkdir()
    library.write_text("")
    monkeypatch.setenv("PYTHONPATH", str(library.parent))
    folder = write_model(tmp_path / "models", "adds", adds(tmp_path / "adds", 10.0), ServingChoice(max_batch_size=8))
    session = folder / "1" / "ort_session.py"
    session.write_text(session.read_text().replace("import numpy as np", "import only_on_the_path, numpy as np", 1))
    async with TritonServer(tmp_path / "models", models=("adds",)) as server, Channels(server.grpc_url) as channels:
        assert (await ask(channels, np.zeros((1, 3), np.float32)) == 10.0).all()
