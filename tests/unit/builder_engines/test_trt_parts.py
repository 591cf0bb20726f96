"""What of the TensorRT engine needs no TensorRT: rungs, profiles, timing cache, progress, messages, inspection."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.contract import DeviceRequest, Interface, RuntimeRequest, TensorSpec
from enginewright_builder.engines import trt_timing_cache as timing_cache
from enginewright_builder.engines.base import BatchRange, BuildContext, ExportedModel, Joined, Rung
from enginewright_builder.engines.buckets import batch_buckets, bucket_ranges
from enginewright_builder.engines.registry import all_engines
from enginewright_builder.engines.tensorrt import TensorRtEngine, _in_python
from enginewright_builder.engines.trt_build import workspace_limits
from enginewright_builder.engines.trt_device import Gpu, MissingError, gpu, lacking
from enginewright_builder.engines.trt_inspect import layer_types, silently_precise
from enginewright_builder.engines.trt_messages import Complaint, build_failed, out_of_memory, parse_failed
from enginewright_builder.engines.trt_profiles import InputShapes, fixed_sizes, profiles
from enginewright_builder.engines.trt_progress import Phases
from enginewright_builder.errors import UserError
from enginewright_builder.pod.python_model.trt_session import Profile, choose

GIB = 1 << 30
H200 = Gpu(product="NVIDIA H200", capability=(9, 0), memory_bytes=140 * GIB, free_bytes=138 * GIB)
TEXT = Interface(inputs=(TensorSpec(name="ids", dtype="int64", shape=("batch", "1..512")),),
                 outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 8)),))
IMAGE = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 3, 32, 32)),), outputs=TEXT.outputs)
PRECISIONS = ["fp32", "tf32", "bf16", "fp16", "fp8", "int8"]


def has_gpu() -> bool:
    try:
        gpu()
    except MissingError:
        return False
    return True


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    return BuildContext(device=DeviceRequest(accelerator="gpu"), runtime=RuntimeRequest(python_runtimes=("tensorrt",)),
                        max_batch_size=32, calibration=(), workspace=tmp_path, buckets=(1, 8, 32),
                        progress=lambda fraction, detail: None)


# Rungs

def test_the_engine_is_always_registered() -> None:
    assert "tensorrt" in [engine.name for engine in all_engines()]


def test_a_cpu_has_no_rungs(context: BuildContext) -> None:
    assert list(TensorRtEngine().rungs("auto", replace(context, device=DeviceRequest()))) == []


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
def test_without_a_gpu_every_rung_says_what_is_missing(context: BuildContext) -> None:
    rungs = TensorRtEngine().rungs("auto", context)
    assert [rung.name for rung in rungs] == [f"tensorrt {precision}" for precision in PRECISIONS]
    for rung in rungs:
        assert "TensorRT" in rung.unavailable or "GPU" in rung.unavailable or "CUDA" in rung.unavailable


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
def test_building_without_a_gpu_is_the_candidates_failure(context: BuildContext, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        TensorRtEngine().build(Rung(backend="tensorrt", precision="fp32"),
                               ExportedModel(path=tmp_path / "none.onnx", interface=IMAGE, opset=18), context)
    assert caught.value.reason == "CandidateFailed"


@pytest.mark.parametrize(("runtime", "servable"), [
    (RuntimeRequest(server_image="triton:1"), False), (RuntimeRequest(backends=("python", "tensorrt")), True),
    (RuntimeRequest(python_runtimes=("onnxruntime", "tensorrt")), True),
])
def test_a_server_image_without_tensorrt_is_named(runtime: RuntimeRequest, servable: bool,
                                                  context: BuildContext) -> None:
    rung, = TensorRtEngine().rungs("fp16", replace(context, runtime=runtime))
    assert ("server image" in rung.unavailable) is not servable
    assert servable or "spec.serving.image" in rung.unavailable


@pytest.mark.parametrize(("capability", "able"), [
    ((9, 0), PRECISIONS), ((8, 9), PRECISIONS), ((8, 6), ["fp32", "tf32", "bf16", "fp16", "int8"]),
    ((7, 5), ["fp32", "fp16", "int8"]), ((6, 1), []),
])
def test_what_a_device_computes_in(capability: tuple[int, int], able: list[str]) -> None:
    device = replace(H200, capability=capability)
    assert [precision for precision in PRECISIONS if not lacking(precision, device)] == able
    assert all(device.product in lacking(name, device) for name in PRECISIONS if name not in able)


@pytest.mark.parametrize(("buckets", "names"), [
    ((), []), ((1,), []), ((1, 4), ["@1", "@1+4", "@4"]), ((1, 8, 32), ["@1", "@1+8+32", "@32", "@8"]),
])
def test_specialised_rungs_begin_with_batch_one(buckets: tuple[int, ...], names: list[str],
                                                context: BuildContext) -> None:
    wide = Rung(backend="tensorrt", precision="fp16")
    found = TensorRtEngine().specialised(wide, replace(context, buckets=buckets))
    assert [rung.name for rung in found] == [f"tensorrt fp16 {name}" for name in names]
    for size in range(1, max(buckets, default=1) + 1):
        assert not found or any(rung.covers(size) for rung in found if len(rung.ranges) == 1)


def test_what_could_not_be_joined_with_others_is_tuned_only_as_one_engine_for_all(context: BuildContext) -> None:
    native = replace(context, buckets=(1, 8, 32), runtime=RuntimeRequest(backends=("python", "tensorrt")))
    found = TensorRtEngine().specialised(Rung(backend="tensorrt", precision="fp16"), native)
    assert [rung.name for rung in found] == ["tensorrt fp16 @1+8+32"]


@pytest.mark.parametrize(("backends", "libraries", "expected"), [
    (("python", "onnxruntime", "tensorrt"), ("tensorrt",), {"buckets": "1,8"}),
    (("tensorrt",), ("tensorrt",), None),  # no Python backend
    (("python", "tensorrt"), ("onnxruntime",), None),  # its Python has no TensorRT
    (("python",), ("tensorrt",), None),  # Python is the one way
])
def test_a_plan_is_run_by_both_backends_where_the_server_has_both(
    backends: tuple[str, ...], libraries: tuple[str, ...], expected: dict[str, str] | None, context: BuildContext
) -> None:
    both = replace(context, runtime=RuntimeRequest(backends=backends, python_runtimes=libraries))
    model = ExportedModel(path=Path("m.onnx"), interface=IMAGE, opset=17)
    assert _in_python(rung((1, 1, 1), (2, 8, 8)), model, both, 2) == expected


# Profiles

def shapes(low: tuple[int, ...], best: tuple[int, ...], high: tuple[int, ...]) -> InputShapes:
    return InputShapes(low=low, best=best, high=high)


def rung(*ranges: tuple[int, int, int]) -> Rung:
    return Rung(backend="tensorrt", precision="fp16",
                ranges=tuple(BatchRange(low=low, best=best, high=high) for low, best, high in ranges))


EXAMPLE_TEXT = {"ids": np.zeros((4, 40), np.int64)}
EXAMPLE_IMAGE = {"x": np.zeros((4, 3, 32, 32), np.float32)}


@pytest.mark.parametrize(("one", "expected"), [
    (rung(), [shapes((1, 1), (32, 40), (32, 512))]),
    (rung((1, 1, 1)), [shapes((1, 40), (1, 40), (1, 40)), shapes((1, 1), (1, 40), (1, 512))]),
    (rung((2, 8, 8)), [shapes((8, 40), (8, 40), (8, 40)), shapes((2, 1), (8, 40), (8, 512))]),
    (rung((1, 1, 1), (2, 32, 32)), [shapes((1, 1), (1, 40), (1, 512)), shapes((2, 1), (32, 40), (32, 512))]),
])
def test_profiles_of_texts(one: Rung, expected: list[InputShapes]) -> None:
    assert [profile["ids"] for profile in profiles(one, TEXT, EXAMPLE_TEXT, 32)] == expected


def test_an_engine_for_batch_one_of_fixed_sizes_has_a_single_constant_profile() -> None:
    found = profiles(rung((1, 1, 1)), IMAGE, EXAMPLE_IMAGE, 32)
    assert [profile["x"] for profile in found] == [shapes((1, 3, 32, 32), (1, 3, 32, 32), (1, 3, 32, 32))]
    assert fixed_sizes(IMAGE)
    assert not fixed_sizes(TEXT)


@given(largest=st.integers(2, 128), preferred=st.lists(st.integers(1, 128), max_size=4))
def test_the_gate_compares_in_every_profile(largest: int, preferred: list[int]) -> None:
    """By the choice that the server makes of them."""
    ranges = bucket_ranges(batch_buckets(largest, tuple(preferred)))
    for each in (ranges, *((one,) for one in ranges)):
        tuned = Rung(backend="tensorrt", precision="fp16", ranges=each)
        found = [Profile(0, index, {name: (one.low, one.best, one.high) for name, one in profile.items()})
                 for index, profile in enumerate(profiles(tuned, IMAGE, EXAMPLE_IMAGE, largest))]
        assert {choose(found, {"x": (batch, 3, 32, 32)})[0].index for batch in tuned.gated_at} == set(range(len(found)))


def test_an_engine_for_every_batch_has_a_profile_for_each_bucket_of_lengths() -> None:
    joined = Joined(mask="ids", fill={"ids": 0.0}, buckets=(24, 128, 512))
    found = [one["ids"] for one in profiles(rung(), TEXT, EXAMPLE_TEXT, 32, joined)]
    assert [(one.low[1], one.best[1], one.high[1]) for one in found] == [(1, 24, 24), (25, 128, 128), (129, 512, 512)]
    assert {(one.low[0], one.best[0], one.high[0]) for one in found} == {(1, 32, 32)}
    one = rung((1, 1, 1))
    assert profiles(one, TEXT, EXAMPLE_TEXT, 32, joined) == profiles(one, TEXT, EXAMPLE_TEXT, 32)


def test_an_input_of_its_own_length_has_all_of_it_in_each_profile() -> None:
    interface = Interface(inputs=(*TEXT.inputs, TensorSpec(name="x", dtype="float32", shape=("batch", "1..9"))))
    joined = Joined(mask="ids", fill={"ids": 0.0}, buckets=(24, 512))
    found = profiles(rung(), interface, {**EXAMPLE_TEXT, "x": np.zeros((1, 3), np.float32)}, 32, joined)
    assert {(one["x"].low, one["x"].best, one["x"].high) for one in found} == {((1, 1), (32, 3), (32, 9))}


@given(low=st.integers(1, 64), span=st.integers(0, 512), typical=st.integers(1, 1024), free=st.booleans(),
       batch=st.integers(1, 256))
def test_profiles_are_ordered_and_inside_the_interface(low: int, span: int, typical: int, free: bool,
                                                       batch: int) -> None:
    size = "tokens" if free else f"{low}..{low + span}"
    interface = Interface(inputs=(TensorSpec(name="ids", dtype="int64", shape=("batch", size)),), outputs=TEXT.outputs)
    one = profiles(rung(), interface, {"ids": np.zeros((1, typical), np.int64)}, batch)[0]["ids"]
    assert all(a <= b <= c for a, b, c in zip(one.low, one.best, one.high, strict=True))
    if free:
        assert one.best[1] == typical
    else:
        assert (one.low[1], one.high[1]) == (low, low + span)


# Workspace

@pytest.mark.parametrize(("asked", "device", "first"), [
    (0, H200, 69 * GIB), (18 * GIB, H200, 9 * GIB), (0, replace(H200, free_bytes=2 * GIB), GIB),
    (0, replace(H200, free_bytes=0), 70 * GIB), (0, replace(H200, free_bytes=1), 16 << 20),
])
def test_the_workspace_respects_the_slice_and_what_is_free(asked: int, device: Gpu, first: int) -> None:
    limits = list(workspace_limits(asked, device))
    assert limits[0] == first
    assert limits == sorted(set(limits), reverse=True)
    assert limits[-1] >= 16 << 20
    assert first == 16 << 20 or len(limits) > 1


# Timing cache

KEY = timing_cache.CacheKey(product="NVIDIA H200", capability="9.0", mig_profile="1g.18gb", tensorrt="10.6.0")


@given(content=st.binary())
def test_a_timing_cache_comes_back_as_it_was(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("caches")
    timing_cache.save(folder, KEY, content)
    assert timing_cache.load(folder, KEY) == timing_cache.Loaded(content=content)
    assert [path.name for path in folder.iterdir()] == ["tensorrt-10.6.0-nvidia-h200-9.0-1g.18gb.cache"]


@given(data=st.data())
def test_a_timing_cache_with_any_byte_changed_is_not_trusted(data: st.DataObject,
                                                             tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("caches")
    timing_cache.save(folder, KEY, b"measured " * 4)
    path = folder / KEY.file
    raw = bytearray(path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(raw))
    loaded = timing_cache.load(folder, KEY)
    assert loaded.content == b""
    assert path.name in loaded.problem


def test_no_timing_cache_is_no_problem(tmp_path: Path) -> None:
    assert timing_cache.load(tmp_path / "none", KEY) == timing_cache.Loaded()


@pytest.mark.parametrize("field", ["product", "capability", "mig_profile", "tensorrt"])
def test_another_devices_timing_cache_is_refused_and_lies_in_another_file(field: str, tmp_path: Path) -> None:
    other = replace(KEY, **{field: "2g.35gb"})
    assert other.file != KEY.file
    timing_cache.save(tmp_path, other, b"theirs")
    (tmp_path / other.file).rename(tmp_path / KEY.file)
    loaded = timing_cache.load(tmp_path, KEY)
    assert loaded.content == b""
    assert "2g.35gb" in loaded.problem


def test_a_save_that_fails_leaves_the_old_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timing_cache.save(tmp_path, KEY, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        timing_cache.save(tmp_path, KEY, b"new")
    monkeypatch.undo()
    assert timing_cache.load(tmp_path, KEY).content == b"old"
    assert len(list(tmp_path.iterdir())) == 1


# Progress

def test_steps_within_half_a_second_are_not_told_one_by_one() -> None:
    told: list[float] = []
    phases = Phases(lambda fraction, detail: told.append(fraction), clock=lambda: 0.0)
    phases.start("build", None, 1000)
    for index in range(1000):
        phases.step("build", index)
    assert len(told) == 1


def test_nested_phases_become_one_fraction() -> None:
    told: list[float] = []
    phases = Phases(lambda fraction, detail: told.append(fraction), clock=itertools.count().__next__)
    phases.start("build", None, 2)
    phases.start("tactics", "build", 4)
    for index in range(4):
        phases.step("tactics", index)
    phases.finish("tactics")
    phases.step("build", 0)
    phases.step("build", 1)
    phases.finish("build")
    assert told == sorted(told)
    assert told[2] < told[5]
    assert told[-1] == 0.5
    phases.start("serialise", None, 1)
    phases.step("serialise", 0)
    phases.finish("serialise")
    assert told[-1] == 0.75


@given(st.lists(st.tuples(st.sampled_from("sxf"), st.sampled_from("abcd"), st.sampled_from(["", "a", "b"]),
                          st.integers(0, 5))))
def test_progress_never_falls_whatever_tensorrt_calls(calls: list[tuple[str, str, str, int]]) -> None:
    told: list[float] = []
    phases = Phases(lambda fraction, detail: told.append(fraction), clock=itertools.count().__next__)
    for kind, name, parent, number in calls:
        if kind == "s" and name > parent:  # a phase is never within itself
            phases.start(name, parent or None, number)
        elif kind == "x":
            phases.step(name, number)
        elif kind == "f":
            phases.finish(name)
    assert told == sorted(told)
    assert all(0.0 <= fraction <= 1.0 for fraction in told)


# Messages

def test_an_unsupported_operator_is_named_before_what_follows_from_it() -> None:
    error = parse_failed([
        Complaint(code="INVALID_NODE", text="Invalid Node - later", node="later", operator="Add"),
        Complaint(code="UNSUPPORTED_NODE", text="\n[8] Assertion failed: no importer", node="volume", operator="Det"),
        Complaint(code="UNSUPPORTED_NODE", text="no importer", node="other", operator="Unique"),
    ], "fp16", "10.6.0")
    assert (error.reason, error.field, error.value) == ("CandidateFailed", "spec.engine.precision", "fp16")
    assert "Det (node 'volume')" in error.message
    assert ", nor Unique:" in error.message
    assert "ONNX Runtime and PyTorch compete" in error.message
    assert "backend at auto" in error.remedy


@pytest.mark.parametrize(("complaints", "said"), [
    ([], "does not say why"), ([Complaint(code="MODEL_DESERIALIZE_FAILED", text="bad magic")], "bad magic"),
])
def test_a_graph_that_cannot_be_read_is_told(complaints: list[Complaint], said: str) -> None:
    assert said in parse_failed(complaints, "fp32", "10.6.0").message


def test_the_reason_below_the_parsers_heading_is_told() -> None:
    said = parse_failed([Complaint(code="INVALID_NODE", text="Invalid Node - conv\nweights are of another type\n",
                                   node="conv", operator="Conv")], "bf16", "10.6.0")
    assert "cannot read Conv (node 'conv'): weights are of another type" in said.message


@pytest.mark.parametrize(("text", "memory"), [
    ("[virtualMemoryBuffer.cpp::resizePhysical::154] Error Code 2: OutOfMemory (Requested size was 2097152 bytes.)",
     True),
    ("Error Code 1: Cuda Runtime (out of memory)", True),
    ("Error Code 10: Internal Error (Could not find any implementation for node conv0 due to insufficient workspace.)",
     True),
    ("Error Code 4: Internal Error (x: dynamic input is missing dimensions in profile 0.)", False),
])
def test_out_of_memory_is_told_from_other_errors(text: str, memory: bool) -> None:
    assert out_of_memory([text]) is memory


def test_what_the_builder_says_is_passed_on_without_its_source_lines() -> None:
    error = build_failed(["IBuilder::buildSerializedNetwork: Error Code 4: Internal Error (x: no profile)"], "int8",
                         "11.4.0")
    assert "Error Code 4: Internal Error (x: no profile)" in error.message
    assert "IBuilder::" not in error.message


# Inspection

def report(*types: str, key: str = "Format/Datatype") -> str:
    return json.dumps({"Layers": [{"Name": f"layer{index}", "Inputs": [], "Outputs": [{"Name": "y", key: name}]}
                                  for index, name in enumerate(types)], "Bindings": ["x", "y"]})


@pytest.mark.parametrize(("text", "name"), [
    ("Half", "fp16"), ("Row major linear FP16 format", "fp16"), ("Float", "fp32"), ("Row major linear FP32", "fp32"),
    ("Int8", "int8"), ("Four wide channel vectorized row major Int8 format", "int8"), ("FP8", "fp8"),
    ("BFloat16", "bf16"), ("BF16", "bf16"), ("Channel major FP16 format where channel % 8 == 0", "fp16"),
])
@pytest.mark.parametrize("key", ["Format/Datatype", "Datatype"])
def test_types_are_read_as_either_inspector_writes_them(text: str, name: str, key: str) -> None:
    assert layer_types(report(text, key=key)) == {name: 1}


@pytest.mark.parametrize(("precision", "types", "refused"), [
    ("fp16", ("Float", "Float", "Float"), True), ("fp16", ("Float", "Half", "Float"), False),
    ("int8", ("Half", "Half", "Half"), True), ("int8", ("Half", "Int8", "Half"), False),
    ("fp32", ("Float", "Float", "Float"), False), ("fp16", ("Float",), False), ("fp16", ("?", "?", "?"), False),
])
def test_an_engine_that_silently_stayed_precise_is_refused(precision: str, types: tuple[str, ...],
                                                           refused: bool) -> None:
    assert bool(silently_precise(precision, report(*types))) is refused


def test_layers_without_details_tell_nothing() -> None:
    plain: dict[str, Any] = {"Layers": ["conv0", "conv1", "conv2"], "Bindings": []}
    assert layer_types(json.dumps(plain)) == {}
    assert silently_precise("fp16", json.dumps(plain)) == ""
