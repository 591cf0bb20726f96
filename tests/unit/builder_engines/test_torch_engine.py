"""The compiled PyTorch engine on a CPU: really compiled, packaged, loaded and compared."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from enginewright_builder.contract import DeviceRequest, Interface, RuntimeRequest, TensorSpec
from enginewright_builder.engines import torch_aoti
from enginewright_builder.engines.base import Artifact, BatchRange, BuildContext, ExportedModel, Rung, Shelf
from enginewright_builder.engines.profile_torch import MARKED, RUN
from enginewright_builder.engines.torch_aoti import TorchEngine
from enginewright_builder.errors import UserError
from enginewright_builder.evidence.profiled import Served, profile_served
from enginewright_builder.models import SourceModel, load_model
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.sources.formats import Located

# A compilation takes a minute of a processor.
pytestmark = [pytest.mark.torch, pytest.mark.timeout(1200)]
SERVED = RuntimeRequest(python_runtimes=("onnxruntime", "torch"))


@pytest.fixture(scope="module", autouse=True)
def no_headers_compiled_ahead() -> Iterator[None]:
    """A build on a CPU has two packages at most: headers compiled ahead would take longer than they save."""
    from torch._inductor import codecache

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codecache, "_precompile_header", None)
        yield


@pytest.fixture(scope="module")
def located(tmp_path_factory: pytest.TempPathFactory) -> Located:
    import torch

    from support.nets import TwoAnswers

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("program") / "m.pt2"
    dynamic = torch.export.Dim.DYNAMIC
    torch.export.save(torch.export.export(
        TwoAnswers().eval(), (torch.zeros(3, 16, dtype=torch.int64), torch.ones(3, 4)),
        dynamic_shapes=({0: dynamic, 1: dynamic}, {0: dynamic})), path)
    return Located(path=path, format="exported-program")


@pytest.fixture(scope="module")
def source(located: Located) -> SourceModel:
    return load_model(located)


@pytest.fixture(scope="module")
def context(source: SourceModel, tmp_path_factory: pytest.TempPathFactory) -> BuildContext:
    return BuildContext(device=DeviceRequest(), runtime=SERVED, max_batch_size=8, calibration=(), buckets=(1, 8),
                        workspace=tmp_path_factory.mktemp("work"), progress=lambda fraction, detail: None,
                        source=source)


def built(rung: Rung, source: SourceModel, context: BuildContext) -> Artifact:
    return TorchEngine().build(rung, ExportedModel(path=Path("unused"), interface=source.interface, opset=18), context)


@pytest.fixture(scope="module")
def wide(source: SourceModel, context: BuildContext) -> Artifact:
    rung, = TorchEngine().rungs("auto", context)
    return built(rung, source, context)


def check(artifact: Artifact, source: SourceModel, batch: int, size: int) -> None:
    inputs = example_inputs(source.interface, batch, seed=batch, size=size)
    runner = TorchEngine().load(artifact)
    got, expected = runner(inputs), source.run(inputs)
    assert {name: array.shape for name, array in got.items()} == {name: one.shape for name, one in expected.items()}
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5)
    runner.bind(inputs)()
    runner.close()


@pytest.mark.parametrize(("batch", "size"), [(1, 1), (1, 5), (3, 16), (8, 31)])
def test_one_package_answers_every_batch_and_size(wide: Artifact, source: SourceModel, batch: int, size: int) -> None:
    check(wide, source, batch, size)


@pytest.mark.parametrize("ranges", [(), (BatchRange(low=1, best=3, high=3),)], ids=["every batch", "one batch"])
def test_a_package_that_is_compiled_beside_the_builds_answers_the_same(
        ranges: tuple[BatchRange, ...], source: SourceModel, located: Located, context: BuildContext,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it was stopped meanwhile; and the build compiles nothing itself."""
    monkeypatch.setattr(torch_aoti, "room", lambda weights, running: True)
    beside = dataclasses.replace(context, located=located, shelf=Shelf(), workspace=context.workspace / "beside")
    rung = Rung(backend="torch", precision="fp32", ranges=ranges)
    exported = ExportedModel(path=located.path, interface=source.interface, opset=18)
    ahead = TorchEngine().begin(rung, exported, beside)
    assert ahead is not None
    assert TorchEngine().begin(rung, exported, beside) is None  # once
    ahead.pause()
    stopped = os.waitid(os.P_PID, ahead.process.pid, os.WSTOPPED)
    assert stopped is not None
    ahead.resume()
    monkeypatch.setattr(torch_aoti, "compile_program", None)
    artifact = TorchEngine().build(rung, exported, beside)
    assert artifact.beside_seconds
    check(artifact, source, 3, 16)


def test_what_could_not_be_compiled_beside_the_builds_is_compiled_alone(
        source: SourceModel, context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_aoti, "room", lambda weights, running: True)
    said: list[str] = []
    (tmp_path / "m.pt2").write_bytes(b"no program")
    beside = dataclasses.replace(context, shelf=Shelf(), workspace=tmp_path / "work",
                                 located=Located(path=tmp_path / "m.pt2", format="exported-program"),
                                 progress=lambda fraction, detail: said.append(detail))
    rung = Rung(backend="torch", precision="fp32")
    assert TorchEngine().begin(rung, ExportedModel(path=tmp_path / "m.pt2", interface=source.interface, opset=18),
                               beside)
    artifact = built(rung, source, beside)
    assert not artifact.beside_seconds
    assert any("compiled again, alone" in one for one in said)
    check(artifact, source, 3, 5)


@pytest.mark.parametrize("changes", [{"located": None}, {"shelf": None}], ids=["no source", "no shelf"])
def test_nothing_is_compiled_beside_where_it_could_not_be_taken(
        source: SourceModel, located: Located, context: BuildContext, changes: dict[str, Any]) -> None:
    beside = dataclasses.replace(context, **{"located": located, "shelf": Shelf(), **changes})
    exported = ExportedModel(path=located.path, interface=source.interface, opset=18)
    assert TorchEngine().begin(Rung(backend="torch", precision="fp32"), exported, beside) is None


def test_a_profile_has_the_kernels_that_the_compiler_wrote(wide: Artifact, source: SourceModel, tmp_path: Path) -> None:
    """Of the same program compiled once more; what serves stays as it is."""
    before = {name: path.read_bytes() for name, path in wide.files.items()}
    served = Served(name="torch fp32", artifact=wide, batch=3)
    found, = profile_served(iter([served]), source, lambda batch: example_inputs(source.interface, batch, size=16),
                            tmp_path / "scratch", tmp_path)
    assert found.problem == ""
    assert {name: path.read_bytes() for name, path in wide.files.items()} == before
    assert any("cpp_fused" in one.name and one.operator == "fused" for one in found.layers), found.layers
    assert 0 < sum(one.share for one in found.layers) <= 1 + 1e-9
    assert found.notes == (MARKED,)
    events = json.loads(gzip.decompress((tmp_path / found.trace).read_bytes()))["traceEvents"]
    assert sum(one.get("name") == RUN and one.get("cat") == "user_annotation" for one in events) == found.runs


def test_the_package_says_what_serves_it(wide: Artifact) -> None:
    assert (wide.triton_backend, wide.python_runtime, set(wide.files)) == (
        "python", "torch", {"model.pt2", "session.json"})
    described = json.loads(wide.files["session.json"].read_text())
    assert described["inputs"][0] == {"name": "ids", "dtype": "int64", "shape": [None, None]}
    assert described["inputs"][1]["shape"] == [None, 4]
    assert (described["batch"], described["tf32"]) == (0, False)


def test_a_specialised_package_takes_its_batch_and_fills_up_what_is_smaller(
        source: SourceModel, context: BuildContext) -> None:
    rung = Rung(backend="torch", precision="fp32", ranges=(BatchRange(low=2, best=4, high=4),))
    artifact = built(rung, source, context)
    check(artifact, source, 4, 9)
    check(artifact, source, 3, 9)
    runner = TorchEngine().load(artifact)
    with pytest.raises(ValueError, match="a batch of 5 is above 4"):
        runner(example_inputs(source.interface, 5, size=9))
    runner.close()


def test_answers_lie_row_by_row_whatever_the_model_does(context: BuildContext) -> None:
    from enginewright_builder.models.torch_base import TorchModel
    from support.nets import ChannelsLast

    interface = Interface(inputs=(TensorSpec(name="image", dtype="float32", shape=("batch", 3, 4, 4)),),
                          outputs=(TensorSpec(name="twice", dtype="float32", shape=("batch", 3, 4, 4)),))
    model = TorchModel(ChannelsLast(), interface, name="channels-last")
    artifact = built(Rung(backend="torch", precision="fp32"), model, dataclasses.replace(
        context, source=model, workspace=context.workspace / "channels-last"))
    runner, inputs = TorchEngine().load(artifact), example_inputs(interface, 5)
    answer, = cast("list[Any]", runner.bind(inputs)())
    assert answer.is_contiguous()
    np.testing.assert_array_equal(answer.numpy(), inputs["image"] * 2)
    runner.close()


def test_another_processor_refuses_before_it_crashes(wide: Artifact, tmp_path: Path) -> None:
    described = json.loads(wide.files["session.json"].read_text())
    (tmp_path / "session.json").write_text(json.dumps({**described, "cpu_flags": ["avx1024"]}))
    (tmp_path / "model.pt2").symlink_to(wide.files["model.pt2"])
    files = {name: tmp_path / name for name in wide.files}
    with pytest.raises(RuntimeError, match="this one lacks avx1024"):
        TorchEngine().load(dataclasses.replace(wide, files=files))


def test_a_server_that_loads_a_package_compiles_nothing(wide: Artifact, tmp_path: Path) -> None:
    """A process of its own with nothing cached, as a replica that starts."""
    compiler, called = tmp_path / "compiler", tmp_path / "called"
    compiler.write_text(f"#!/bin/sh\ntouch {called}\nexec g++ \"$@\"\n")
    compiler.chmod(0o755)
    program = ("import sys; from enginewright_builder.pod.python_model.aoti_session import Session; "
               "Session(sys.argv[1], sys.argv[2:], device=-1)")
    subprocess.run([sys.executable, "-c", program, str(wide.files["model.pt2"].parent), *wide.files], check=True,
                   env={**os.environ, "CXX": str(compiler), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
                        "PYTHONPATH": os.pathsep.join(sys.path)})
    assert not called.exists()


def test_what_cannot_be_traced_is_told(source: SourceModel, context: BuildContext) -> None:
    from enginewright_builder.models.torch_base import TorchModel
    from support.nets import Branching

    branching = TorchModel(Branching(), dataclasses.replace(
        source.interface, inputs=source.interface.inputs[1:], outputs=source.interface.outputs[1:]), name="branching")
    with pytest.raises(UserError) as caught:
        built(Rung(backend="torch", precision="fp32"), branching, dataclasses.replace(context, source=branching))
    assert (caught.value.reason, caught.value.field) == ("CandidateFailed", "spec.engine.backend")
    assert "torch fp32" in caught.value.message


def rungs(context: BuildContext, **changes: Any) -> list[tuple[str, str]]:
    return [(rung.precision, rung.unavailable)
            for rung in TorchEngine().rungs("auto", dataclasses.replace(context, **changes))]


def test_rungs_say_what_is_missing(context: BuildContext, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rungs(context) == [("fp32", "")]
    (_, reason), = rungs(context, runtime=RuntimeRequest(server_image="triton:1"))
    assert "spec.serving.image" in reason
    (_, reason), = rungs(context, runtime=RuntimeRequest())
    assert "write --backend torch" in reason
    (_, reason), = rungs(context, source=None)
    assert "torch.export" in reason
    assert [name for name, _ in rungs(context, device=DeviceRequest(accelerator="gpu"))] == [
        "fp32", "tf32", "bf16", "fp16"]
    monkeypatch.setattr(torch_aoti, "compiler", lambda: "")
    (_, reason), = rungs(context)
    assert "C++ compiler" in reason


def test_other_precisions_have_no_rung(context: BuildContext) -> None:
    assert list(TorchEngine().rungs("int8", context)) == []


def test_buckets_are_specialised_where_filling_up_is_cheap(context: BuildContext) -> None:
    rung = Rung(backend="torch", precision="fp32")
    gpu = dataclasses.replace(context, device=DeviceRequest(accelerator="gpu"), buckets=(1, 8, 32))
    assert [one.name for one in TorchEngine().specialised(rung, gpu)] == [
        "torch fp32 @1", "torch fp32 @8", "torch fp32 @32"]
    assert [one.name for one in TorchEngine().specialised(rung, context)] == ["torch fp32 @1"]
    assert list(TorchEngine().specialised(rung, dataclasses.replace(context, buckets=(1,)))) == []
