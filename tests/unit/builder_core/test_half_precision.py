"""A PyTorch source exported in half precision computes in it, and keeps its interface."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.models import SourceModel, load_model
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.ort_session import OrtRunner
from enginewright_builder.sources.formats import Located
from enginewright_builder.tensors import Tensors

pytestmark = pytest.mark.torch

IDS = TensorSpec(name="ids", dtype="int64", shape=("batch", "1..32"))
SCALE = TensorSpec(name="scale", dtype="float32", shape=("batch", 6))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> SourceModel:
    import torch

    from support.nets import MixedTypes

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("half") / "m.pt2"
    dynamic = torch.export.Dim.DYNAMIC
    made = torch.export.export(MixedTypes().eval(), (torch.zeros(3, 16, dtype=torch.int64), torch.ones(3, 6)),
                               dynamic_shapes=({0: dynamic, 1: dynamic}, {0: dynamic}))
    torch.export.save(made, path)
    return load_model(Located(path=path, format="exported-program"))


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> SourceModel:
    import torch

    path = tmp_path_factory.mktemp("half") / "m.pt"
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
    torch.jit.trace(net, torch.rand(2, 6)).save(str(path))  # type: ignore[no-untyped-call]
    return load_model(Located(path=path, format="torchscript"), Interface(inputs=(SCALE,)))


def off(model: SourceModel, path: Path, inputs: Tensors) -> float:
    """Largest difference of the export's answers to the model's own."""
    runner = OrtRunner(path)
    got, expected = runner(inputs), model.run(inputs)
    runner.close()
    assert {name: array.dtype for name, array in got.items()} == {name: array.dtype for name, array in expected.items()}
    return max(float(np.abs(got[name] - expected[name]).max()) for name in expected)


def weight_types(path: Path) -> set[int]:
    return {tensor.data_type for tensor in onnx.load(str(path)).graph.initializer if len(tensor.dims) == 2}


def test_fp16_export_holds_and_computes_in_fp16(program: SourceModel, tmp_path: Path) -> None:
    program.export_onnx(tmp_path / "m.onnx", 18, "fp16")
    graph = onnx.load(str(tmp_path / "m.onnx")).graph
    assert weight_types(tmp_path / "m.onnx") == {TensorProto.FLOAT16}
    assert [value.name for value in graph.input] == [spec.name for spec in program.interface.inputs]
    assert [value.name for value in graph.output] == [spec.name for spec in program.interface.outputs]
    inputs = example_inputs(program.interface, 5, size=9)
    assert 1e-6 < off(program, tmp_path / "m.onnx", inputs) < 0.02


def test_bf16_export_holds_bf16_and_takes_fp32(program: SourceModel, tmp_path: Path) -> None:
    program.export_onnx(tmp_path / "m.onnx", 18, "bf16")
    graph = onnx.load(str(tmp_path / "m.onnx")).graph
    assert weight_types(tmp_path / "m.onnx") == {TensorProto.BFLOAT16}
    assert {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)} == {
        TensorProto.INT64, TensorProto.FLOAT}


def test_a_convolution_that_a_normalisation_is_folded_into_holds_one_type(tmp_path: Path) -> None:
    """Also its bias, which the folding makes."""
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.BatchNorm2d(4), torch.nn.Flatten(1))
    with torch.no_grad():
        net(2 * torch.rand(16, 3, 8, 8) + 1)  # a mean and a variance to fold
    made = torch.export.export(net.eval(), (torch.rand(2, 3, 8, 8),),
                               dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.export.save(made, tmp_path / "m.pt2")
    model = load_model(Located(path=tmp_path / "m.pt2", format="exported-program"))
    model.export_onnx(tmp_path / "m.onnx", 22, "bf16")
    graph = onnx.load(str(tmp_path / "m.onnx"))
    folded, = (node for node in graph.graph.node if node.op_type == "Conv")
    types = {tensor.name: tensor.data_type for tensor in graph.graph.initializer}
    assert [types[name] for name in folded.input[1:]] == [TensorProto.BFLOAT16, TensorProto.BFLOAT16]
    onnx.shape_inference.infer_shapes(graph, check_type=True, strict_mode=True)


def test_the_source_stays_in_fp32(program: SourceModel, tmp_path: Path) -> None:
    inputs = example_inputs(program.interface, 2, size=5)
    before = program.run(inputs)
    program.export_onnx(tmp_path / "m.onnx", 18, "fp16")
    assert all(np.array_equal(before[name], array) for name, array in program.run(inputs).items())


def test_program_has_the_batch_free_or_frozen(program: SourceModel) -> None:
    import torch

    free, frozen = program.torch_program("fp16"), program.torch_program("fp32", batch=1)
    assert free is not None
    assert frozen is not None
    assert [sorted(shape) for shape in free.dynamic_shapes["inputs"]] == [[0, 1], [0]]
    assert [sorted(shape) for shape in frozen.dynamic_shapes["inputs"]] == [[1], []]
    assert frozen.args[0].shape[0] == 1
    assert [output.dtype for output in free.module(*free.args)] == [torch.float32, torch.float32]


@pytest.mark.parametrize("format_", ["torchscript", "onnx"])
def test_sources_that_cannot_change_their_precision_say_so(script: SourceModel, format_: str, tmp_path: Path) -> None:
    script.export_onnx(tmp_path / "m.onnx", 18)
    source = script if format_ == "torchscript" else load_model(
        Located(path=tmp_path / "m.onnx", format="onnx"), None, tmp_path)
    with pytest.raises(UserError) as caught:
        source.export_onnx(tmp_path / "half.onnx", 18, "fp16")
    assert (caught.value.reason, caught.value.value) == ("ExportFailed", "fp16")
    assert source.torch_program("fp32") is None
