"""From a graph to a plan with a stand-in for TensorRT: what is done about a damaged timing cache, too little memory,
and operators that it lacks. The real one is asked the same in tests/gpu."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.engines import trt_build
from enginewright_builder.engines import trt_timing_cache as timing_cache
from enginewright_builder.engines.base import OutOfTimeError, Shelf
from enginewright_builder.engines.trt_build import PlanRequest, build_plan
from enginewright_builder.engines.trt_device import Gpu
from enginewright_builder.errors import UserError

GIB, MIB = 1 << 30, 1 << 20
H200 = Gpu(product="NVIDIA H200", capability=(9, 0), memory_bytes=8 * GIB, free_bytes=8 * GIB)
KEY = timing_cache.CacheKey(product="NVIDIA H200", capability="9.0", mig_profile="", tensorrt="10.6.0")
MEASURED = b"measured before"
Told = list[str]


@dataclass
class Problem:
    """One error of the parser, told by calls as TensorRT's bindings do."""

    text: str
    node_: str
    operator: str

    def code(self) -> str:
        return "ErrorCode.UNSUPPORTED_NODE"

    def desc(self) -> str:
        return self.text

    def node_name(self) -> str:
        return self.node_

    def node_operator(self) -> str:
        return self.operator


@dataclass
class Config:
    """``caches`` are what it was given as timing caches, in turn."""

    accepts: Callable[[bytes], bool]
    builder_optimization_level: int = 0
    caches: list[bytes] = field(default_factory=list)
    flags: list[object] = field(default_factory=list)
    workspace: int = 0
    progress_monitor: Any = None

    def set_memory_pool_limit(self, pool: object, limit: int) -> None:
        self.workspace = limit

    def create_timing_cache(self, content: bytes) -> bytes:
        return bytes(content)

    def set_timing_cache(self, cache: bytes, ignore: bool) -> bool:
        if not self.accepts(cache):
            return False
        self.caches.append(cache)
        return True

    def get_timing_cache(self) -> Any:
        return SimpleNamespace(serialize=lambda: self.caches[-1] + b", measured now")

    def set_flag(self, flag: object) -> None:
        self.flags.append(flag)

    def clear_flag(self, flag: object) -> None: ...


class StandIn:
    """TensorRT as far as ``build_plan`` asks it. ``fits`` is the largest workspace that its memory allows."""

    __version__ = "10.6.0"
    ILogger = type("ILogger", (), {"ERROR": "error", "INTERNAL_ERROR": "internal", "__init__": lambda self: None})
    IProgressMonitor = type("IProgressMonitor", (), {"__init__": lambda self: None})
    ProfilingVerbosity = SimpleNamespace(DETAILED=0)
    MemoryPoolType = SimpleNamespace(WORKSPACE=0)
    BuilderFlag = SimpleNamespace(TF32=0, SPARSE_WEIGHTS=1)
    NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
    LayerInformationFormat = SimpleNamespace(JSON=0)

    def __init__(self, *, fits: int = 8 * GIB, problems: Sequence[Problem] = (),
                 accepts: Callable[[bytes], bool] = lambda cache: True) -> None:
        self.fits, self.problems, self.accepts = fits, problems, accepts
        self.configs: list[Config] = []
        self.log: Any = None
        self.builders = self.steps = 0

    def init_libnvinfer_plugins(self, log: Any, namespace: str) -> None:
        self.log = log

    def Builder(self, log: Any) -> Any:  # noqa: N802  (TensorRT's own name)
        self.builders += 1
        return SimpleNamespace(create_network=lambda flags: object(), create_builder_config=self._config,
                               build_serialized_network=self._build)

    def OnnxParser(self, network: object, log: Any) -> Any:  # noqa: N802
        return SimpleNamespace(parse_from_file=lambda path: not self.problems, num_errors=len(self.problems),
                               get_error=lambda index: self.problems[index])

    def Runtime(self, log: Any) -> Any:  # noqa: N802
        inspector = SimpleNamespace(get_engine_information=lambda form: '{"Layers": []}')
        engine = SimpleNamespace(is_shape_inference_io=lambda name: False, get_tensor_dtype=lambda name: "float32",
                                 create_engine_inspector=lambda: inspector)
        return SimpleNamespace(deserialize_cuda_engine=lambda plan: engine)

    def nptype(self, dtype: str) -> Any:
        return SimpleNamespace(__name__=dtype)

    def _config(self) -> Config:
        self.configs.append(Config(accepts=self.accepts))
        return self.configs[-1]

    def _build(self, network: object, config: Config) -> bytes | None:
        """As the real one, it ends without an engine, and without an error, once the monitor says so."""
        for step in range(3):
            self.steps += 1
            if not config.progress_monitor.step_complete("build", step):
                return None
        if config.workspace <= self.fits:
            return b"plan"
        self.log.log("error", "[virtualMemoryBuffer.cpp::resizePhysical] Error Code 2: OutOfMemory")
        return None


@pytest.fixture
def request_(tmp_path: Path) -> PlanRequest:
    interface = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),))
    return PlanRequest(graph=tmp_path / "model.onnx", precision="fp16", interface=interface, profiles=(),
                       memory_bytes=0, timing_caches=tmp_path / "timing-caches", cache_key=KEY)


def build(trt: StandIn, request: PlanRequest) -> tuple[bytes, Told]:
    told: Told = []
    return build_plan(trt, request, H200, lambda fraction, detail: told.append(detail)), told


def kept(request: PlanRequest) -> Path:
    assert request.timing_caches is not None
    timing_cache.save(request.timing_caches, KEY, MEASURED)
    return request.timing_caches / KEY.file


def test_what_was_measured_before_is_used_and_kept_with_what_is_new(request_: PlanRequest) -> None:
    kept(request_)
    trt = StandIn()
    plan, told = build(trt, request_)
    assert plan == b"plan"
    assert trt.configs[0].caches == [MEASURED]
    assert not any("ignored" in line for line in told)
    assert timing_cache.load(request_.timing_caches or Path(), KEY).content == MEASURED + b", measured now"


def test_a_quick_build_looks_at_fewer_kernels_and_leaves_no_timings(request_: PlanRequest) -> None:
    kept(request_)
    full, quick = StandIn(), StandIn()
    build(quick, replace(request_, quick=True))
    assert timing_cache.load(request_.timing_caches or Path(), KEY).content == MEASURED
    assert quick.configs[0].caches == [MEASURED]
    build(full, request_)
    assert full.configs[0].builder_optimization_level > quick.configs[0].builder_optimization_level
    assert timing_cache.load(request_.timing_caches or Path(), KEY).content == MEASURED + b", measured now"


def test_sparse_kernels_compete_where_weights_are_sparse_alone(request_: PlanRequest) -> None:
    trt = StandIn()
    for sparse in (False, True):
        build(trt, replace(request_, sparse=sparse))
    assert [trt.BuilderFlag.SPARSE_WEIGHTS in config.flags for config in trt.configs] == [False, True]


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


@pytest.mark.parametrize("spoil", [damaged, cut, lambda path: path.write_bytes(b"")], ids=["damaged", "cut", "empty"])
def test_a_corrupt_timing_cache_is_ignored_said_and_made_anew(spoil: Callable[[Path], object],
                                                              request_: PlanRequest) -> None:
    spoil(kept(request_))
    trt = StandIn()
    plan, told = build(trt, request_)
    assert plan == b"plan"
    assert trt.configs[0].caches == [b""]
    assert any(line.startswith("timing cache ignored and measured again: tensorrt-10.6.0-") for line in told)
    assert timing_cache.load(request_.timing_caches or Path(), KEY).content == b", measured now"


def test_a_timing_cache_that_tensorrt_itself_refuses_is_ignored_and_said(request_: PlanRequest) -> None:
    kept(request_)
    trt = StandIn(accepts=lambda cache: cache == b"")
    plan, told = build(trt, request_)
    assert plan == b"plan"
    assert "timing cache ignored and measured again: TensorRT refuses it" in told
    assert timing_cache.load(request_.timing_caches or Path(), KEY).content == b", measured now"


def test_out_of_memory_tries_smaller_workspaces_and_says_so(request_: PlanRequest) -> None:
    trt = StandIn(fits=GIB)
    plan, told = build(trt, request_)
    assert plan == b"plan"
    assert [config.workspace for config in trt.configs] == [4 * GIB, GIB]
    assert "out of GPU memory with 4096 MiB of workspace" in told


def test_a_build_ends_with_the_step_after_which_no_time_is_left(request_: PlanRequest) -> None:
    left, trt = iter([1.0, 0.0, 0.0]), StandIn()
    with pytest.raises(OutOfTimeError):
        build(trt, replace(request_, time_left=lambda: next(left)))
    assert trt.steps == 2


def test_memory_that_no_workspace_fits_into_is_the_candidates_failure(request_: PlanRequest) -> None:
    trt = StandIn(fits=0)
    with pytest.raises(UserError, match=r"the GPU's memory \(8\.0 GiB\) is too small to build the engine") as caught:
        build(trt, request_)
    assert caught.value.reason == "CandidateFailed"
    assert "spec.engine.maxBatchSize" in caught.value.remedy
    assert len(trt.configs) == 4


def test_an_operator_that_tensorrt_lacks_is_named_with_its_node_and_who_competes_instead(
        request_: PlanRequest) -> None:
    problem = Problem(text="No importer registered for op: GridSample3D.", node_="/head/grid", operator="GridSample3D")
    with pytest.raises(UserError) as caught:
        build(StandIn(problems=[problem]), request_)
    assert caught.value.reason == "CandidateFailed"
    for words in ("does not support GridSample3D (node '/head/grid')", "ONNX Runtime and PyTorch compete without it"):
        assert words in caught.value.message


def held(bytes_: int) -> Callable[[], Gpu]:
    """What the GPU says once a builder of this size was made."""
    return lambda: replace(H200, free_bytes=H200.free_bytes - bytes_)


def test_a_climb_makes_one_builder_and_each_build_starts_without_errors(
        request_: PlanRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trt_build, "gpu", held(GIB // 8))
    trt, shelf = StandIn(fits=256 * MIB), Shelf()
    for _ in range(2):
        assert build(trt, replace(request_, shelf=shelf))[0] == b"plan"
    assert trt.builders == 1
    shelf.clear()
    build(trt, replace(request_, shelf=shelf))
    assert trt.builders == 2
    trt.fits = 0  # an error of this build is not taken for one of the next
    with pytest.raises(UserError, match="memory"):
        build(trt, replace(request_, shelf=shelf))
    trt.fits = 8 * GIB
    assert build(trt, replace(request_, shelf=shelf))[0] == b"plan"
    assert trt.log.errors == []


@pytest.mark.parametrize(("shelf", "size"), [(Shelf(), H200.memory_bytes // 10), (None, 0)], ids=["large", "alone"])
def test_a_builder_that_takes_much_of_the_gpu_is_not_kept(shelf: Shelf | None, size: int, request_: PlanRequest,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trt_build, "gpu", held(size))
    trt = StandIn()
    for _ in range(2):
        build(trt, replace(request_, shelf=shelf))
    assert trt.builders == 2
