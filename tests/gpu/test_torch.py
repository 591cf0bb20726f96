"""Compiled PyTorch on a real GPU: CUDA graphs, DLPack, half precision, and FP32 that is FP32."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from enginewright_builder.contract import DeviceRequest, Interface, Normalise, RuntimeRequest, TensorSpec
from enginewright_builder.engines.base import Artifact, BatchRange, BuildContext, ExportedModel, Rung
from enginewright_builder.engines.torch_aoti import TorchEngine
from enginewright_builder.engines.torch_layout import arranged
from enginewright_builder.models.base import SourceModel
from enginewright_builder.models.normalised import Normalised
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.models.torch_base import TorchModel
from support.shared_memory import in_shared_memory

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

IMAGE = Interface(inputs=(TensorSpec(name="image", dtype="float32", shape=("batch", 3, 32, 32)),),
                  outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", 10)),))
PIXELS = Interface(inputs=IMAGE.inputs,
                   outputs=(TensorSpec(name="scores", dtype="float32", shape=("batch", 10, 32, 32)),))
TEXT = Interface(inputs=(TensorSpec(name="ids", dtype="int64", shape=("batch", "1..64")),),
                 outputs=(TensorSpec(name="vector", dtype="float32", shape=("batch", 64)),))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.parts = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
                                   nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 49, 10))

    def forward(self, image: Any) -> Any:
        return self.parts(image)


class Text(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = torch.nn.Embedding(100, 64), torch.nn.Linear(64, 64)

    def forward(self, ids: Any) -> Any:
        return self.layer(self.table(ids)).relu().mean(dim=1)


class Map(torch.nn.Module):
    """An answer for each pixel, from convolutions that are wide enough for NHWC."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.parts = nn.Sequential(nn.Conv2d(3, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(),
                                   nn.Conv2d(128, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 10, 1))

    def forward(self, image: Any) -> Any:
        return self.parts(image)


@pytest.fixture(scope="module")
def image() -> TorchModel:
    torch.manual_seed(0)
    return TorchModel(Net().eval(), IMAGE, name="net", device="cuda")


@pytest.fixture(scope="module")
def text() -> TorchModel:
    torch.manual_seed(0)
    return TorchModel(Text().eval(), TEXT, name="text", device="cuda")


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> BuildContext:
    return BuildContext(device=DeviceRequest(accelerator="gpu", gpu_count=1), max_batch_size=8, calibration=(),
                        runtime=RuntimeRequest(python_runtimes=("torch",)), buckets=(1, 4, 8),
                        workspace=tmp_path_factory.mktemp("work"), progress=lambda fraction, detail: None)


def built(model: SourceModel, precision: str, context: BuildContext, *ranges: BatchRange) -> Artifact:
    context = dataclasses.replace(context, source=model, workspace=context.workspace / f"model-{id(model)}")
    rung = Rung(backend="torch", precision=precision, ranges=ranges)
    return TorchEngine().build(rung, ExportedModel(path=Path("unused"), interface=model.interface, opset=18), context)


def session_of(artifact: Artifact) -> Any:
    from enginewright_builder.pod.python_model.aoti_session import Session

    folder = next(iter(artifact.files.values())).parent
    buckets = [int(part) for part in artifact.parameters["buckets"].split(",")]
    return Session(folder, list(artifact.files), device=0, buckets=buckets)


@pytest.fixture(scope="module")
def session(image: TorchModel, context: BuildContext) -> Iterator[Any]:
    opened = session_of(built(image, "fp32", context))
    yield opened
    opened.close()


def off(got: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    return max(float(np.abs(got[name] - array).max() / np.abs(array).max()) for name, array in expected.items())


def test_buckets_are_captured_when_the_session_opens(session: Any) -> None:
    assert sorted(shapes[0][0] for shapes, graph in session._graphs.items() if graph is not None) == [1, 2, 4, 8]


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 8])
def test_a_batch_filled_up_to_its_bucket_answers_as_the_source(session: Any, image: TorchModel, batch: int) -> None:
    for seed in range(3):  # the graph's buffers hold the rows of the batch before
        inputs = example_inputs(IMAGE, batch, seed=100 * batch + seed)
        got = session.run(inputs)
        assert got["scores"].shape == (batch, 10)
        assert off(got, image.run(inputs)) < 1e-5


def test_answers_stay_when_the_next_ones_come(session: Any) -> None:
    first, second = (example_inputs(IMAGE, 4, seed=seed) for seed in (1, 2))
    got = session.run(first)
    kept = {name: array.copy() for name, array in got.items()}
    session.run(second)
    assert all(np.array_equal(got[name], array) for name, array in kept.items())


def test_a_batch_above_the_buckets_runs_without_a_graph(session: Any, image: TorchModel) -> None:
    inputs = example_inputs(IMAGE, 11, seed=5)
    assert off(session.run(inputs), image.run(inputs)) < 1e-5


def test_what_is_timed_answers_as_what_serves(session: Any, image: TorchModel) -> None:
    inputs = example_inputs(IMAGE, 3, seed=9)
    outputs = session.bind(inputs)()
    assert off({"scores": outputs[0][:3].cpu().numpy()}, image.run(inputs)) < 1e-5


def test_members_on_the_device_are_joined_and_split_there(session: Any, image: TorchModel) -> None:
    members = [example_inputs(IMAGE, batch, seed=batch) for batch in (1, 2, 3)]
    tensors = [{"image": session.receive(torch.from_numpy(member["image"]).cuda())} for member in members]
    answers = session.run_members(tensors)
    session.run(example_inputs(IMAGE, 6, seed=77))  # must not write over them
    for member, answer in zip(members, answers, strict=True):
        assert answer["scores"].is_cuda
        back = torch.utils.dlpack.from_dlpack(answer["scores"])
        assert off({"scores": back.cpu().numpy()}, image.run(member)) < 1e-5


def test_members_in_host_memory_are_joined_on_the_gpu(session: Any, image: TorchModel) -> None:
    members = [example_inputs(IMAGE, batch, seed=batch) for batch in (1, 2, 3)]
    answers = session.run_members(members)
    session.run(example_inputs(IMAGE, 6, seed=77))  # must not write over them
    for member, answer in zip(members, answers, strict=True):
        assert off(answer, image.run(member)) < 1e-5


def test_shared_memory_is_read_where_it_lies(session: Any, image: TorchModel) -> None:
    with in_shared_memory(example_inputs(IMAGE, 8, seed=4)["image"]) as (array, address, size):
        session.register(address, size)
        assert torch.from_numpy(array).is_pinned()
        assert off(session.run({"image": array}), image.run({"image": array})) < 1e-5
        torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(("precision", "low", "high"), [("tf32", 0.0, 1e-2), ("fp16", 1e-6, 1e-2),
                                                        ("bf16", 1e-5, 5e-2)])
def test_lower_precisions_round_and_keep_the_interface(image: TorchModel, context: BuildContext, precision: str,
                                                       low: float, high: float) -> None:
    runner = TorchEngine().load(built(image, precision, context))
    inputs = example_inputs(IMAGE, 8, seed=3)
    got = runner(inputs)
    runner.close()
    assert got["scores"].dtype == np.float32
    assert low <= off(got, image.run(inputs)) < high


def test_bytes_are_normalised_in_the_package(image: TorchModel, context: BuildContext) -> None:
    sent = TensorSpec(name="image", dtype="uint8", shape=("batch", 3, 32, 32), normalise=Normalise(
        scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)))
    source = Normalised(image, Interface(inputs=(sent,)))
    session = session_of(built(source, "fp16", context))
    for batch in (1, 8, 8):
        inputs = example_inputs(source.interface, batch, seed=batch)
        assert off(session.run(inputs), source.run(inputs)) < 1e-2
    session.close()


def test_a_package_for_one_bucket(image: TorchModel, context: BuildContext) -> None:
    artifact = built(image, "fp16", context, BatchRange(low=2, best=4, high=4))
    assert (artifact.parameters["buckets"], json.loads(artifact.files["session.json"].read_text())["batch"]) == ("4", 4)
    runner = TorchEngine().load(artifact)
    for batch in (2, 4):
        inputs = example_inputs(IMAGE, batch, seed=batch)
        assert off(runner(inputs), image.run(inputs)) < 1e-2
    with pytest.raises(ValueError, match="above 4"):
        runner(example_inputs(IMAGE, 5))
    runner.close()


def test_convolutions_in_nhwc_for_every_batch(context: BuildContext) -> None:
    torch.manual_seed(0)
    model = TorchModel(Map().eval(), PIXELS, name="map", device="cuda")
    program = model.torch_program("fp16")
    assert program is not None
    assert arranged(program)[1] == {"force_layout_optimization": True}
    session = session_of(built(model, "fp16", context))
    for batch in (1, 3, 8, 11):
        inputs = example_inputs(PIXELS, batch, seed=batch)
        assert off(session.run(inputs), model.run(inputs)) < 1e-2
        on_device = {"image": session.receive(torch.from_numpy(inputs["image"]).cuda())}
        answer = torch.utils.dlpack.from_dlpack(session.run_members([on_device])[0]["scores"])
        assert answer.is_contiguous()
        assert off({"scores": answer.cpu().numpy()}, model.run(inputs)) < 1e-2
    session.close()


def test_free_sizes_are_captured_when_they_come_back(text: TorchModel, context: BuildContext) -> None:
    session = session_of(built(text, "fp32", context))
    assert not session._graphs
    for size, captured in ((9, 0), (9, 1), (17, 1), (9, 1)):
        inputs = example_inputs(TEXT, 3, seed=size, size=size)
        assert off(session.run(inputs), text.run(inputs)) < 1e-5
        assert sum(graph is not None for graph in session._graphs.values()) == captured
    session.close()


def test_the_reference_is_true_fp32_whatever_the_process_allows(image: TorchModel) -> None:
    inputs = example_inputs(IMAGE, 8, seed=1)
    exact = TorchModel(Net().eval(), IMAGE, name="cpu")
    exact.module.load_state_dict({name: value.cpu() for name, value in image.module.state_dict().items()})
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = True
    try:
        assert off(image.run(inputs), exact.run(inputs)) < 1e-5
        assert (matmul.allow_tf32, cudnn.allow_tf32) == (True, True)
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
