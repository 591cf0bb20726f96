"""Profiles of engines: medians over the runs, traces that Perfetto opens, and builds that no profiler fails."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import PROFILE_FOLDER, Interface, TensorSpec, dumps, load
from enginewright_builder.engines.base import Artifact, Rung
from enginewright_builder.engines.profile_worker import keep_inputs, kept_inputs, profiler
from enginewright_builder.evidence import profiled
from enginewright_builder.evidence.profiled import Served, profile_served
from enginewright_builder.measure.profile import (
    LEAST_RUNS,
    MOST_RUNS,
    SLOWEST,
    EngineProfile,
    Event,
    Profiled,
    Run,
    Timed,
    layer_times,
    packed,
    repeat,
    summed,
)
from enginewright_builder.tensors import Tensors

INTERFACE = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 64)),),
                      outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 64)),))
NO_SOURCE: Any = None


def run(begin: float, microseconds: float, *layers: tuple[str, float]) -> Run:
    return Run(begin=begin, microseconds=microseconds,
               layers=[Timed(name=name, operator=name[:1], microseconds=took) for name, took in layers])


class TestSummary:
    def test_layers_are_medians_over_the_runs_the_slowest_first(self) -> None:
        runs = [run(0, 100, ("a", 10), ("b", 30), ("b", 30)), run(100, 100, ("a", 20), ("b", 35), ("b", 25)),
                run(200, 200, ("a", 90), ("b", 50), ("b", 60), ("once", 1))]
        slow, fast = layer_times(runs)
        assert (slow.name, slow.operator, slow.microseconds, slow.calls, slow.share) == ("b", "b", 30, 2, 0.6)
        assert (fast.name, fast.microseconds, fast.calls, fast.share) == ("a", 20, 1, 0.2)

    def test_layers_that_run_at_the_same_time_share_no_more_than_the_whole(self) -> None:
        assert [one.share for one in layer_times([run(0, 100, ("a", 90), ("b", 60))])] == [0.6, 0.4]

    def test_the_record_has_the_slowest_and_how_many_there_are(self) -> None:
        told = Profiled(runs=[run(0, 100, *((f"layer {number}", 1.0 + number) for number in range(30)))] * 3, events=())
        found, trace = summed(told, name="e", library="torch", batch=4, trace="profile/e.trace.json.gz")
        assert (len(found.layers), found.layer_count, found.runs, found.run_microseconds) == (SLOWEST, 30, 3, 100)
        assert found.layers[0].name == "layer 29"
        assert json.loads(gzip.decompress(trace))["traceEvents"] == []
        assert load(EngineProfile, dumps(found)) == found

    def test_a_profiler_without_a_run_is_told(self) -> None:
        with pytest.raises(ValueError, match="told of no run"):
            summed(Profiled(runs=[], events=()), name="e", library="torch", batch=1, trace="t")


class TestTrace:
    events: tuple[Event, ...] = ({"ph": "M", "name": "process_name"}, *(
        {"ph": "X", "name": str(np.random.default_rng(number).bytes(200)), "ts": 10.0 * number, "dur": 9.0}
        for number in range(9)))
    runs = tuple(run(10.0 * number, 9) for number in range(9))

    def count(self, limit: int) -> tuple[int, int]:
        data, count = packed(self.events, self.runs, limit)
        return count, len(json.loads(gzip.decompress(data))["traceEvents"]) if data else 0

    def test_it_has_so_many_of_the_last_runs_as_fit(self) -> None:
        assert self.count(1 << 20) == (9, 10)
        assert self.count(2000) == (3, 4)
        assert self.count(800) == (1, 2)
        assert self.count(100) == (0, 0)

    def test_the_same_events_are_the_same_file(self) -> None:
        assert packed(self.events, self.runs) == packed(self.events, self.runs)

    def test_what_is_left_out_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("enginewright_builder.measure.profile.packed", lambda *_: (b"", 0))
        found, _ = summed(Profiled(runs=self.runs, events=self.events, notes=("mind",)), name="e", library="torch",
                          batch=1, trace="t")
        assert found.trace == ""
        assert found.notes == ("mind", "There is no trace: that of one run has more than 4 MiB.")
        monkeypatch.setattr("enginewright_builder.measure.profile.packed", lambda *_: (b"z", 3))
        found, _ = summed(Profiled(runs=self.runs, events=self.events), name="e", library="torch", batch=1, trace="t")
        assert (found.trace, found.notes) == ("t", ("The trace has the last 3 of 9 runs: more are too large.",))


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 3), (3600.0, 9)])
def test_runs_are_bounded_both_ways(seconds: float, expected: int) -> None:
    called: list[None] = []
    repeat(lambda: called.append(None), least=3, most=9, seconds=seconds)
    assert len(called) == expected


def test_inputs_reach_the_profiler_as_they_are(tmp_path: Path) -> None:
    inputs = {"x": np.arange(6, dtype=np.float16).reshape(2, 3), "t": np.array([["a"], ["bé"]], dtype=np.object_)}
    keep_inputs(tmp_path / "i.npz", inputs)
    found = kept_inputs(tmp_path / "i.npz")
    assert {name: (array.dtype, array.tolist()) for name, array in found.items()} == {
        name: (array.dtype, array.tolist()) for name, array in inputs.items()}


def test_a_library_without_a_profiler_is_named() -> None:
    with pytest.raises(ValueError, match="no profiler for engines of abacus"):
        profiler("abacus")


class TestOnnxRuntime:
    @pytest.fixture
    def engine(self, tmp_path: Path) -> Artifact:
        weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["product"], name="/dense/MatMul"),
             helper.make_node("Sin", ["product"], ["y"], name="/dense/Sin")], "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
            [numpy_helper.from_array(weights, "w")])
        path = tmp_path / "model.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
        return Artifact(rung=Rung(backend="onnxruntime", precision="fp32"), files={"model.onnx": path},
                        triton_backend="onnxruntime", interface=INTERFACE, runtime_version="1")

    def profile(self, engine: Artifact, tmp_path: Path) -> EngineProfile:
        served = Served(name="onnxruntime fp32 @1+8", artifact=engine, batch=8)
        found, = profile_served(iter([served]), NO_SOURCE, given, tmp_path / "scratch", tmp_path)
        assert not list((tmp_path / "scratch").iterdir())
        return found

    def test_a_real_session_leaves_its_nodes_and_a_trace(self, engine: Artifact, tmp_path: Path) -> None:
        found = self.profile(engine, tmp_path)
        assert (found.problem, found.library, found.batch) == ("", "onnxruntime", 8)
        assert LEAST_RUNS <= found.runs <= MOST_RUNS
        assert {(one.name, one.operator, one.calls) for one in found.layers} == {
            ("/dense/MatMul", "MatMul", 1), ("/dense/Sin", "Sin", 1)}
        assert found.layer_count == 2
        assert 0 < sum(one.share for one in found.layers) <= 1 + 1e-9
        assert found.trace == f"{PROFILE_FOLDER}/onnxruntime-fp32-1-8.trace.json.gz"
        events = json.loads(gzip.decompress((tmp_path / found.trace).read_bytes()))["traceEvents"]
        assert sum(one["name"] == "model_run" for one in events) >= found.runs
        assert all({"ph", "ts", "pid", "tid"} <= set(one) for one in events)

    def test_an_engine_that_does_not_run_has_the_problem(self, engine: Artifact, tmp_path: Path) -> None:
        engine.files["model.onnx"].write_bytes(b"no model")
        found = self.profile(engine, tmp_path)
        assert "model.onnx" in found.problem
        assert (found.layers, found.trace, found.runs) == ((), "", 0)
        assert not (tmp_path / PROFILE_FOLDER).exists()

    def test_a_profiler_that_takes_too_long_is_stopped(self, engine: Artifact, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(profiled, "SECONDS", 0.0)
        monkeypatch.setattr(profiled, "_WORKER", ["sh", "-c", "exec sleep 3600"])
        assert self.profile(engine, tmp_path).problem == "the profiler was stopped: all of it may take 0 s"

    def test_a_profiler_that_dies_has_its_status(self, engine: Artifact, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(profiled, "_WORKER", ["sh", "-c", "kill -SEGV $$"])
        assert self.profile(engine, tmp_path).problem == "the profiler ended with status -11"


def given(batch: int) -> Tensors:
    return {"x": np.ones((batch, 64), np.float32)}
