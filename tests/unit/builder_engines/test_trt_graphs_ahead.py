"""Which CUDA graphs the TensorRT session makes, and when: on a fake of TensorRT and of CUDA that has what the session
calls. ``tests/gpu/test_tensorrt.py`` runs the same session on the real ones."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.engines import profile_trt
from enginewright_builder.measure.profile import LEAST_RUNS, MOST_RUNS
from enginewright_builder.pod.python_model import trt_session
from enginewright_builder.pod.python_model.trt_session import FEW_GRAPHS, OFTEN, Session, filled_up, steps

Shape = tuple[int, ...]


class FakeGpu:
    """Memory of this process, by made-up addresses. A captured graph runs its work when it is launched."""

    handle = 7

    def __init__(self, device: int) -> None:
        self.memory: dict[int, Any] = {}
        self.captures, self.capturing = 0, False

    def activate(self) -> None: ...

    def wait(self) -> None: ...

    def allocate(self, size: int) -> int:
        address = 1 + len(self.memory)
        self.memory[address] = np.zeros(max(size, 1), np.uint8)
        return address

    def fill(self, address: int, name: str, tensors: Sequence[Any]) -> None:
        data = np.concatenate([tensor.array.view(np.uint8).ravel() for tensor in tensors])
        self.memory[address][:data.size] = data

    def download(self, address: int, shape: Shape, dtype: Any) -> Any:
        return self.memory[address].view(dtype)[:int(np.prod(shape))].reshape(shape).copy()

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        self.captures += 1
        return work

    def launch(self, graph: Callable[[], None]) -> None:
        graph()

    def drop(self, graph: object) -> None: ...

    def close(self) -> None: ...


LAYERS = (("/dense/MatMul + /dense/Add", 0.5), ("[Gelu]", 0.25))


class FakeContext:
    """Doubles its input. As TensorRT's contexts do, with ``enqueue_emits_profile`` at its default, it tells a profiler
    each layer's milliseconds in every enqueue."""

    profiler: Any = None

    def __init__(self, engine: FakeEngine) -> None:
        self.engine, self.addresses = engine, dict[str, int]()
        self.shape: Shape = (0, 0)

    def set_optimization_profile_async(self, index: int, stream: int) -> bool:
        return True

    def set_device_memory(self, address: int, size: int) -> None: ...

    def set_input_shape(self, name: str, shape: Shape) -> bool:
        self.shape = shape
        return True

    def get_tensor_shape(self, name: str) -> Shape:
        return self.shape

    def set_tensor_address(self, name: str, address: int) -> None:
        self.addresses[name] = address

    def execute_async_v3(self, stream: int) -> bool:
        count = int(np.prod(self.shape))
        memory = self.engine.gpu().memory
        memory[self.addresses["y"]].view(np.float32)[:count] = 2 * memory[self.addresses["x"]].view(np.float32)[:count]
        self.engine.rows.append(self.shape[0])
        for name, milliseconds in LAYERS if self.profiler is not None else ():
            self.profiler.report_layer_time(name, milliseconds)
        return True


class FakeEngine:
    num_io_tensors, device_memory_size_v2 = 2, 16

    def __init__(self, profiles: Sequence[tuple[Shape, Shape, Shape]]) -> None:
        self.profiles, self.contexts, self.rows = profiles, 0, list[int]()
        self.num_optimization_profiles = len(profiles)
        self.gpu: Callable[[], FakeGpu]

    def get_tensor_name(self, index: int) -> str:
        return "xy"[index]

    def get_tensor_mode(self, name: str) -> str:
        return "in" if name == "x" else "out"

    def get_tensor_dtype(self, name: str) -> str:
        return "float32"

    def get_tensor_profile_shape(self, name: str, index: int) -> tuple[Shape, Shape, Shape]:
        return self.profiles[index]

    def create_execution_context(self, strategy: object) -> FakeContext:
        self.contexts += 1
        return FakeContext(self)


def installed(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake: Any = types.ModuleType("tensorrt")
    fake.ILogger = type("ILogger", (), {"ERROR": 1, "INTERNAL_ERROR": 0})
    fake.IProfiler = type("IProfiler", (), {})
    fake.TensorIOMode = types.SimpleNamespace(INPUT="in")
    fake.ExecutionContextAllocationStrategy = types.SimpleNamespace(USER_MANAGED=0)
    fake.init_libnvinfer_plugins = lambda *_: None
    fake.nptype = lambda kind: kind
    fake.Runtime = lambda log: types.SimpleNamespace(deserialize_cuda_engine=lambda plan: engine)
    monkeypatch.setitem(sys.modules, "tensorrt", fake)
    monkeypatch.setattr(trt_session, "Gpu", FakeGpu)
    (tmp_path / "model.plan").write_bytes(b"plan")


def opened(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, buckets: Sequence[int]) -> Session:
    installed(engine, monkeypatch, tmp_path)
    engine.gpu = lambda: session._gpu  # type: ignore[assignment,return-value]
    session = Session.__new__(Session)
    session.__init__(tmp_path, ["model.plan"], buckets=buckets)  # type: ignore[misc]
    return session


def answered(session: Session, *shape: int) -> bool:
    x = np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)
    return bool(np.array_equal(session.run({"x": x})["y"], 2 * x))


IMAGES = [((1, 4), (1, 4), (1, 4)), ((2, 4), (8, 4), (8, 4)), ((9, 4), (32, 4), (32, 4))]


@pytest.mark.parametrize(("low", "high", "expected"), [
    (1, 32, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]), (9, 32, [12, 16, 24, 32]), (1, 1, [1]), (2, 8, [2, 3, 4, 6, 8]),
    (1, 20, [1, 2, 3, 4, 6, 8, 12, 16, 20]), (5, 5, [5]),
])
def test_batches_are_run_at_few_sizes(low: int, high: int, expected: list[int]) -> None:
    assert steps(low, high) == expected


@given(rows=st.integers(1, 300), low=st.integers(1, 300), high=st.integers(1, 300))
def test_a_batch_is_filled_up_by_at_most_half(rows: int, low: int, high: int) -> None:
    low, high = sorted((low, high))
    rows = min(max(rows, low), high)
    profile = trt_session.Profile(0, 0, {"x": ((low, 4), (high, 4), (high, 4))})
    (wanted, _) = filled_up(profile, {"x": (rows, 4)})["x"]
    assert rows <= wanted <= high
    assert wanted <= max(1.5 * rows, low)
    assert wanted in steps(low, high)


@pytest.mark.parametrize("profiles", [IMAGES, [((1, 4), (32, 4), (32, 4))]], ids=["one-each", "one-for-all"])
def test_no_request_waits_for_a_graph(profiles: list[tuple[Shape, Shape, Shape]], monkeypatch: pytest.MonkeyPatch,
                                      tmp_path: Path) -> None:
    engine = FakeEngine(profiles)
    session = opened(engine, monkeypatch, tmp_path, (1, 8, 32))
    contexts, captures = engine.contexts, session._gpu.captures  # type: ignore[attr-defined]
    assert captures == len(steps(1, 32))
    for _ in range(3):
        assert all(answered(session, batch, 4) for batch in range(1, 33))
    assert (engine.contexts, session._gpu.captures) == (contexts, captures)  # type: ignore[attr-defined]
    assert set(engine.rows) == set(steps(1, 32))
    session.close()


def test_texts_of_the_likeliest_length_have_their_graphs_and_others_get_theirs(monkeypatch: pytest.MonkeyPatch,
                                                                             tmp_path: Path) -> None:
    engine = FakeEngine([((1, 1), (8, 40), (8, 512))])
    session = opened(engine, monkeypatch, tmp_path, (1, 8))
    ahead = session._gpu.captures  # type: ignore[attr-defined]
    assert ahead == len(steps(1, 8))
    for _ in range(3):
        assert all(answered(session, batch, 40) for batch in range(1, 9))
    assert session._gpu.captures == ahead  # type: ignore[attr-defined]
    assert answered(session, 2, 41)
    assert session._gpu.captures == ahead  # type: ignore[attr-defined]
    assert answered(session, 2, 41)
    assert session._gpu.captures == ahead + 1  # type: ignore[attr-defined]


def test_a_stream_of_lengths_does_not_make_graphs_all_the_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine = FakeEngine([((1, 1), (8, 40), (8, 512))])
    session = opened(engine, monkeypatch, tmp_path, (1, 8))
    lengths = range(100, 150)
    for _ in range(OFTEN - 1):
        assert all(answered(session, 1, length) for length in lengths)
    assert session._gpu.captures == FEW_GRAPHS  # type: ignore[attr-defined]
    assert all(answered(session, 1, length) for length in lengths)
    assert session._gpu.captures > FEW_GRAPHS  # type: ignore[attr-defined]


def test_without_buckets_nothing_is_captured_ahead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    session = opened(FakeEngine(IMAGES), monkeypatch, tmp_path, ())
    assert session._gpu.captures == 0  # type: ignore[attr-defined]
    assert answered(session, 5, 4)


def test_a_profile_has_the_layers_of_each_run_and_captures_no_graph(monkeypatch: pytest.MonkeyPatch, tmp_path: Path
                                                                    ) -> None:
    """On the fakes of this file: what TensorRT's own profiler tells on a GPU is not shown by it."""
    engine, made = FakeEngine([((1, 4), (8, 4), (8, 4))]), list[FakeGpu]()

    class Noted(FakeGpu):
        def __init__(self, device: int) -> None:
            super().__init__(device)
            made.append(self)

    installed(engine, monkeypatch, tmp_path)
    monkeypatch.setattr(trt_session, "Gpu", Noted)
    engine.gpu = lambda: made[0]
    told = profile_trt.profile({"model.plan": tmp_path / "model.plan"}, {}, {"x": np.ones((8, 4), np.float32)})
    assert made[0].captures == 0
    assert LEAST_RUNS <= len(told.runs) <= MOST_RUNS
    for one in told.runs:
        assert [(layer.name, layer.microseconds) for layer in one.layers] == [(name, 1e3 * ms) for name, ms in LAYERS]
        assert one.microseconds == 750
    layers = [one for one in told.events if one.get("cat") == "layer"]
    assert [one["ts"] for one in layers[:3]] == [0, 500, 750]
    assert len(layers) == len(told.runs) * len(LAYERS)
    assert all(one["ph"] == "M" or one["dur"] > 0 for one in told.events)
    assert "without CUDA graphs" in told.notes[0]
