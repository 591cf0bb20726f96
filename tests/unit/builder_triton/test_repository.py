from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.contract import Interface, ServingChoice, TensorSpec
from enginewright_builder.engines.base import Artifact, Joined, Member, Rung
from enginewright_builder.engines.composite import combine
from enginewright_builder.errors import UserError
from enginewright_builder.pod import python_model
from enginewright_builder.triton import install, process
from enginewright_builder.triton.model_config import TAKES_MISSING, parse_text
from enginewright_builder.triton.ports import QUIET, free_ports
from enginewright_builder.triton.repository import threads_per_instance, write_model

INTERFACE = Interface(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 3)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),),
)


def artifact(folder: Path, backend: str, *names: str, **parameters: str) -> Artifact:
    files = {}
    for name in names:
        files[name] = folder / name.replace("/", "-")
        files[name].write_bytes(name.encode())
    return Artifact(
        rung=Rung(backend="onnxruntime", precision="fp32"),
        files=files,
        triton_backend=backend,
        interface=INTERFACE,
        runtime_version="1",
        parameters=parameters,
    )


def tree(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_python_backend_gets_its_program_and_its_share_of_the_cores(tmp_path: Path) -> None:
    made = artifact(tmp_path, "python", "model.onnx", "weights/model.onnx.data")
    serving = ServingChoice(max_batch_size=4, instance_count=3)
    model = write_model(tmp_path / "root", "m", made, serving, cores=8, warmup={"x": np.ones((2, 3), np.float32)})
    assert tree(model) == {
        "config.pbtxt",
        "1/model.py",
        "1/ort_session.py",
        "1/engines.json",
        "1/model.onnx",
        "1/weights/model.onnx.data",
        "warmup/sample-0",
    }
    config = parse_text((model / "config.pbtxt").read_text())
    assert config.backend == "python"
    assert {key: value.string_value for key, value in config.parameters.items()} == {"threads": "2"}
    assert json.loads((model / "1/engines.json").read_text()) == {"engines": [
        {"up_to": 4, "runtime": "onnxruntime", "files": ["model.onnx", "weights/model.onnx.data"], "buckets": [],
         "parameters": {}}]}


@pytest.mark.parametrize("backend", ["python", "onnxruntime"])
@pytest.mark.parametrize("missing", [False, True])
def test_the_configuration_says_whether_values_may_be_missing(backend: str, missing: bool, tmp_path: Path) -> None:
    made = artifact(tmp_path, backend, "model.onnx")
    model = write_model(tmp_path / "root", "m", made, ServingChoice(max_batch_size=4), missing=missing)
    assert (TAKES_MISSING in parse_text((model / "config.pbtxt").read_text()).parameters) is missing


def test_a_tokenizer_lies_beside_the_engines_and_is_none_of_their_files(tmp_path: Path) -> None:
    made = artifact(tmp_path, "python", "model.onnx", "tokeniser.json")
    alone = write_model(tmp_path / "alone", "m", made, ServingChoice(max_batch_size=4))
    assert tree(alone) == {"config.pbtxt", "1/model.py", "1/ort_session.py", "1/tokeniser.py", "1/engines.json",
                           "1/model.onnx", "1/tokeniser.json"}
    other = served_by(artifact(tmp_path, "python", "model.pt2", "session.json", "tokeniser.json"),
                      python_runtime="torch")
    joined = combine([Member(up_to=1, artifact=made), Member(up_to=4, artifact=other)])
    both = write_model(tmp_path / "both", "m", joined, ServingChoice(max_batch_size=4))
    assert {name for name in tree(both) if "tokeniser" in name} == {"1/tokeniser.json", "1/tokeniser.py"}
    for model, files in ((alone, [["model.onnx"]]), (both, [["m0/model.onnx"], ["m1/model.pt2", "m1/session.json"]])):
        described = json.loads((model / "1/engines.json").read_text())["engines"]
        assert [entry["files"] for entry in described] == files


JOINED = Joined(mask="x", fill={"x": 0.0}, cut={"y": (1,)}, run_positions=37.5, steps=(8, 16))


def test_only_python_joins_requests_of_different_length(tmp_path: Path) -> None:
    made = dataclasses.replace(artifact(tmp_path, "python", "model.onnx"), joined=JOINED)
    model = write_model(tmp_path / "root", "m", made, ServingChoice(max_batch_size=4))
    assert tree(model / "1") == {"model.py", "lengths.py", "ort_session.py", "engines.json", "model.onnx"}
    assert json.loads((model / "1/engines.json").read_text())["lengths"] == {
        "mask": "x", "fill": {"x": 0.0}, "left": False, "cut": {"y": [1]}, "run_positions": 37.5, "steps": [8, 16]}
    [given] = parse_text((model / "config.pbtxt").read_text()).input
    assert given.allow_ragged_batch


@pytest.mark.parametrize(("backend", "batch"), [("onnxruntime", 4), ("python", 1)])
def test_a_native_backend_and_lone_requests_join_nothing(tmp_path: Path, backend: str, batch: int) -> None:
    made = dataclasses.replace(artifact(tmp_path, backend, "model.onnx"), joined=JOINED)
    model = write_model(tmp_path / "root", "m", made, ServingChoice(max_batch_size=batch))
    assert "1/lengths.py" not in tree(model)
    assert not parse_text((model / "config.pbtxt").read_text()).input[0].allow_ragged_batch


def served_by(made: Artifact, **changes: Any) -> Artifact:
    return dataclasses.replace(made, **changes)


def test_a_composite_lies_in_folders_and_says_who_takes_what(tmp_path: Path) -> None:
    plan = artifact(tmp_path, "tensorrt", "model.plan", profiles="0", graph_batches="1,4")
    onnx = artifact(tmp_path, "python", "model.onnx")
    package = served_by(artifact(tmp_path, "python", "model.pt2", "session.json", buckets="8,16"),
                        python_runtime="torch")
    made = combine([Member(up_to=4, artifact=plan), Member(up_to=8, artifact=onnx), Member(up_to=12, artifact=plan),
                    Member(up_to=16, artifact=package)])
    model = write_model(tmp_path / "root", "m", made, ServingChoice(max_batch_size=16), gpus=(0,))
    assert tree(model / "1") == {"model.py", "engines.json", "ort_session.py", "trt_session.py", "aoti_session.py",
                                 "shared_memory.py", "m0/model.plan", "m1/model.onnx", "m2/model.pt2",
                                 "m2/session.json"}
    engines = json.loads((model / "1/engines.json").read_text())["engines"]
    assert [(one["up_to"], one["runtime"], one["files"], one["buckets"], one["parameters"]) for one in engines] == [
        (4, "tensorrt", ["m0/model.plan"], [1, 4], {}), (8, "onnxruntime", ["m1/model.onnx"], [], {}),
        (12, "tensorrt", ["m0/model.plan"], [1, 4], {}),
        (16, "torch", ["m2/model.pt2", "m2/session.json"], [8, 16], {})]
    config = parse_text((model / "config.pbtxt").read_text())
    assert config.backend == "python"
    assert set(config.parameters) == {"threads"}, "inputs on the host: not every member takes them on the device"


def test_a_composite_must_take_the_largest_batch(tmp_path: Path) -> None:
    one, two = artifact(tmp_path, "python", "a.onnx"), artifact(tmp_path, "python", "b.onnx")
    made = combine([Member(up_to=1, artifact=one), Member(up_to=4, artifact=two)])
    with pytest.raises(ValueError, match="takes 4, requests up to 8"):
        write_model(tmp_path / "root", "m", made, ServingChoice(max_batch_size=8))


@pytest.mark.parametrize("limits", [(4,), (4, 4), (8, 4)])
def test_members_out_of_order_are_refused(tmp_path: Path, limits: tuple[int, ...]) -> None:
    made = artifact(tmp_path, "python", "model.onnx")
    with pytest.raises(ValueError, match="ascending"):
        combine([Member(up_to=limit, artifact=made) for limit in limits])


@pytest.mark.parametrize(("runtime", "gpus", "stays"), [("torch", (0,), True), ("torch", (), False),
                                                         ("onnxruntime", (0,), False), ("tensorrt", (0,), True)])
def test_inputs_stay_on_the_device_for_who_takes_them_there(tmp_path: Path, runtime: str, gpus: tuple[int, ...],
                                                            stays: bool) -> None:
    made = served_by(artifact(tmp_path, "python", "model.bin"), python_runtime=runtime)
    model = write_model(tmp_path / "root", "m", made, ServingChoice(max_batch_size=4), gpus=gpus)
    parameters = parse_text((model / "config.pbtxt").read_text()).parameters
    assert (parameters["FORCE_CPU_ONLY_INPUT_TENSORS"].string_value == "no") is stays


def test_inputs_go_to_the_host_where_two_libraries_share_a_model(tmp_path: Path) -> None:
    """Each takes tensors of the GPU, and each in a form of its own."""
    plan = artifact(tmp_path, "tensorrt", "model.plan")
    package = served_by(artifact(tmp_path, "python", "model.pt2", "session.json"), python_runtime="torch")
    made = combine([Member(up_to=4, artifact=plan), Member(up_to=8, artifact=package)])
    model = write_model(tmp_path / "root", "m", made, ServingChoice(max_batch_size=8), gpus=(0,))
    assert set(parse_text((model / "config.pbtxt").read_text()).parameters) == {"threads"}


def test_tensorrt_plan_with_profiles_and_graphs(tmp_path: Path) -> None:
    parameters = {"profiles": "0,2", "graph_batches": "1,4", "strategy": "ON_PROFILE_CHANGE"}
    made = artifact(tmp_path, "tensorrt", "resnet.plan", **parameters)
    model = write_model(tmp_path / "root", "m", made, ServingChoice(max_batch_size=4), gpus=(0, 1))
    config = parse_text((model / "config.pbtxt").read_text())
    assert tree(model) == {"config.pbtxt", "1/resnet.plan"}
    assert (config.platform, config.default_model_filename) == ("tensorrt_plan", "resnet.plan")
    assert list(config.instance_group[0].profile) == ["0", "2"]
    assert list(config.instance_group[0].gpus) == [0, 1]
    assert [spec.batch_size for spec in config.optimization.cuda.graph_spec] == [1, 4]
    assert set(config.parameters) == {"strategy"}


def test_a_model_is_never_written_over(tmp_path: Path) -> None:
    made = artifact(tmp_path, "python", "model.onnx")
    write_model(tmp_path / "root", "m", made, ServingChoice(max_batch_size=4))
    with pytest.raises(FileExistsError):
        write_model(tmp_path / "root", "m", made, ServingChoice(max_batch_size=4))


def test_nothing_is_written_for_a_config_that_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        write_model(tmp_path / "root", "m", artifact(tmp_path, "caffe", "model"), ServingChoice(max_batch_size=4))
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(("instances", "cores", "threads"), [(1, 8, 8), (3, 8, 2), (8, 8, 1), (16, 8, 1)])
def test_threads_share_the_cores(instances: int, cores: int, threads: int) -> None:
    assert threads_per_instance(instances, cores) == threads


@pytest.mark.parametrize(("program", "others"), [
    ("model.py", {"triton_python_backend_utils"}),
    ("ort_session.py", {"onnxruntime"}),
    ("aoti_session.py", {"torch"}),
    ("trt_session.py", {"tensorrt", "cuda"}),
    ("shared_memory.py", set()),
])
def test_the_served_program_imports_only_what_a_server_image_has(program: str, others: set[str]) -> None:
    source = Path(*python_model.__path__) / program
    imported: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"numpy", *others}


def test_server_named_by_the_environment_or_found_in_path_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "tritonserver"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    found = install.find(tmp_path)
    assert (found.binary, found.backends) == (program, None)
    monkeypatch.setenv(install.BINARY_VARIABLE, "/opt/tritonserver/bin/tritonserver")
    assert install.find(tmp_path).binary == Path("/opt/tritonserver/bin/tritonserver")


def test_further_backends_lie_beside_those_of_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(install.BINARY_VARIABLE, raising=False)
    library = tmp_path / "further" / "tensorrt" / "libtriton_tensorrt.so"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setenv(install.BACKENDS_VARIABLE, str(library.parent.parent))
    backends = install.find(tmp_path / "scratch").backends
    assert backends is not None
    assert {folder.name for folder in backends.iterdir()} == {"python", "tensorrt"}
    assert (backends / "tensorrt" / library.name).resolve() == library


def test_wheel_gets_writable_backends_with_the_stub_of_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(install.BINARY_VARIABLE, raising=False)
    found = install.find(tmp_path)
    assert found.backends is not None
    stub = found.backends / "python/triton_python_backend_stub"
    assert os.access(stub, os.X_OK)
    assert "nvidia_pytriton.libs" in found.environment["LD_LIBRARY_PATH"]


def test_no_server_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(install.BINARY_VARIABLE, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="no tritonserver") as caught:
        install.find(tmp_path)
    assert "enginewright[triton]" in caught.value.remedy


def test_memory_and_family_of_this_process() -> None:
    assert os.getpid() in process.descendants(os.getppid())
    assert process.resident_bytes(os.getpid()) > 10 << 20
    assert process.resident_bytes(2**22 + 1) == 0


def test_only_shared_memory_of_this_server_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SHARED_MEMORY", tmp_path)
    for name in ("enginewright-1-a", "enginewright-1-b", "enginewright-2-a", "other"):
        (tmp_path / name).touch()
    process.remove_shared_memory("enginewright-1-")
    assert {path.name for path in tmp_path.iterdir()} == {"enginewright-2-a", "other"}


def test_ports_differ() -> None:
    found = free_ports(16)
    assert len(set(found)) == 16
    assert set(found) <= set(QUIET)
