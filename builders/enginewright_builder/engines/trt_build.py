"""From a typed ONNX to a TensorRT plan, with TensorRT 10 and 11 alike.

Networks are strongly typed: TensorRT 11 knows no other, and 10 has a flag for it. So there are no precision flags; only
TF32, which is no type of its own, is switched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginewright_builder.contract import Interface
from enginewright_builder.engine_store.signing import Keys
from enginewright_builder.engines import trt_timing_cache as timing_cache
from enginewright_builder.engines.base import OutOfTimeError, Shelf
from enginewright_builder.engines.trt_builder import NoBuilderError, Tool, tool
from enginewright_builder.engines.trt_device import Gpu, gpu
from enginewright_builder.engines.trt_inspect import silently_precise
from enginewright_builder.engines.trt_messages import (
    Complaint,
    build_failed,
    candidate_failed,
    memory_exhausted,
    out_of_memory,
    parse_failed,
)
from enginewright_builder.engines.trt_profiles import Profile
from enginewright_builder.engines.trt_progress import Phases, monitor
from enginewright_builder.errors import UserError
from enginewright_builder.shapes import numpy_dtype

# TensorRT's default. On an H200 level 5 gained nothing for ResNet-50, and takes several times as long.
OPTIMISATION_LEVEL = 3
# Times only the kernels that heuristics favour (competition/cost.py and promise.py say what it saves and loses).
QUICK_LEVEL = 2
# Of the memory that is free: the weights, the activations and other instances need the rest.
_WORKSPACE_SHARE = 0.5
# How often a workspace that was too much is cut, and to what part.
_ATTEMPTS, _CUT = 4, 4
_LEAST_WORKSPACE = 16 << 20


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What to build. ``memory_bytes`` is what the device that serves it has, 0 if unknown. A ``quick`` build leaves no
    timings: a later one is to look at all kernels. ``sparse``: some weights are 2:4 sparse, so kernels that leave zeros
    out compete, too."""

    graph: Path
    precision: str
    interface: Interface
    profiles: Sequence[Profile]
    memory_bytes: int
    timing_caches: Path | None
    cache_key: timing_cache.CacheKey
    quick: bool = False
    shelf: Shelf | None = None
    keys: Keys | None = None
    sparse: bool = False
    time_left: Callable[[], float] = lambda: math.inf


def build_plan(trt: Any, request: PlanRequest, device: Gpu, progress: Callable[[float, str], None]) -> bytes:
    """The serialised engine. Raises :class:`UserError` ``CandidateFailed`` with TensorRT's reason and a remedy, and
    :class:`OutOfTimeError`."""
    made = _tool(trt, request, device)
    builder, log = made.builder, made.log
    # The parser owns the weights until the engine is built.
    network, _parser = _parse(trt, builder, log, request)
    cache = _timing_cache(request, progress)
    phases = Phases(progress)
    watcher = monitor(trt, phases, request.time_left)
    limits = list(workspace_limits(request.memory_bytes, device))
    for limit in limits:
        log.errors.clear()
        config = _config(trt, builder, request, limit, cache, watcher, progress)
        plan = builder.build_serialized_network(network, config)
        if plan is not None:
            _save_timing_cache(request, config, cache, progress)
            return _checked(trt, log, bytes(plan), request)
        if request.time_left() <= 0:
            raise OutOfTimeError
        if not out_of_memory(log.errors):
            raise build_failed(log.errors, request.precision, trt.__version__)
        progress(0.0, f"out of GPU memory with {limit >> 20} MiB of workspace")
    raise memory_exhausted(request.precision, limits[-1], request.memory_bytes or device.memory_bytes)


def _tool(trt: Any, request: PlanRequest, before: Gpu) -> Tool:
    try:
        return tool(trt, request.shelf, before, gpu)
    except NoBuilderError as error:
        if out_of_memory(error.errors):
            raise memory_exhausted(request.precision, 0, request.memory_bytes or before.memory_bytes) from error
        raise build_failed(error.errors, request.precision, trt.__version__) from error


def workspace_limits(memory_bytes: int, device: Gpu) -> Iterator[int]:
    """Bytes of workspace to try, falling; the first leaves room in the slice, whatever the device has beside it."""
    memory = min(memory_bytes or device.memory_bytes, device.free_bytes or device.memory_bytes)
    limit = max(_LEAST_WORKSPACE, int(memory * _WORKSPACE_SHARE))
    for _ in range(_ATTEMPTS):
        yield limit
        if limit == _LEAST_WORKSPACE:
            return
        limit = max(_LEAST_WORKSPACE, limit // _CUT)


def _parse(trt: Any, builder: Any, log: Any, request: PlanRequest) -> tuple[Any, Any]:
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(0 if flag is None else 1 << int(flag))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(request.graph)):
        complaints = [_complaint(parser.get_error(index)) for index in range(parser.num_errors)]
        raise parse_failed(complaints, request.precision, trt.__version__)
    return network, parser


def _complaint(error: Any) -> Complaint:
    return Complaint(code=str(error.code()).rpartition(".")[2], text=str(error.desc()), node=str(error.node_name()),
                     operator=str(error.node_operator()))


def _config(trt: Any, builder: Any, request: PlanRequest, limit: int, cache: bytes, watcher: Any,
            progress: Callable[[float, str], None]) -> Any:
    config = builder.create_builder_config()
    config.builder_optimization_level = QUICK_LEVEL if request.quick else OPTIMISATION_LEVEL
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.progress_monitor = watcher
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, limit)
    if request.precision == "fp32":
        config.clear_flag(trt.BuilderFlag.TF32)
    else:
        config.set_flag(trt.BuilderFlag.TF32)
    if request.sparse:
        config.set_flag(trt.BuilderFlag.SPARSE_WEIGHTS)
    for shapes in request.profiles:
        profile = builder.create_optimization_profile()
        for name, shape in shapes.items():
            profile.set_shape(name, shape.low, shape.best, shape.high)
        if config.add_optimization_profile(profile) < 0:
            raise candidate_failed(request.precision, f"TensorRT {trt.__version__} refuses the shapes {_sizes(shapes)}",
                                   "state the inputs' shapes in spec.interface")
    _use_timing_cache(config, cache, progress)
    return config


def _sizes(profile: Profile) -> str:
    return ", ".join(f"{name} {list(shape.low)} to {list(shape.high)}" for name, shape in profile.items())


def _timing_cache(request: PlanRequest, progress: Callable[[float, str], None]) -> bytes:
    if request.timing_caches is None:
        return b""
    loaded = timing_cache.load(request.timing_caches, request.cache_key, request.keys)
    if loaded.problem:
        progress(0.0, f"timing cache ignored and measured again: {loaded.problem}")
    return loaded.content


def _use_timing_cache(config: Any, content: bytes, progress: Callable[[float, str], None]) -> None:
    """An empty one gathers what is measured; one that TensorRT refuses is as good as none."""
    cache = config.create_timing_cache(content)
    if content and (cache is None or not config.set_timing_cache(cache, False)):
        progress(0.0, "timing cache ignored and measured again: TensorRT refuses it")
        cache, content = config.create_timing_cache(b""), b""
    if not content:
        config.set_timing_cache(cache, False)


def _save_timing_cache(request: PlanRequest, config: Any, before: bytes,
                       progress: Callable[[float, str], None]) -> None:
    """A store that cannot be written costs the next build its time, not this one its engine."""
    if request.timing_caches is None or request.quick:
        return
    content = bytes(config.get_timing_cache().serialize())
    if content != before:
        try:
            timing_cache.save(request.timing_caches, request.cache_key, content, request.keys)
        except OSError as error:
            progress(1.0, f"timing cache not kept: {error.strerror}")


def _checked(trt: Any, log: Any, plan: bytes, request: PlanRequest) -> bytes:
    """The plan, once its inputs, outputs and layers are what was asked for."""
    engine = trt.Runtime(log).deserialize_cuda_engine(plan)
    if engine is None:
        raise build_failed(log.errors, request.precision, trt.__version__)
    for spec in (*request.interface.inputs, *request.interface.outputs):
        _check_tensor(trt, engine, spec.name, spec.dtype, request.precision)
    report = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    if problem := silently_precise(request.precision, report):
        raise candidate_failed(request.precision, problem, "write auto")
    return plan


def _check_tensor(trt: Any, engine: Any, name: str, dtype: str, precision: str) -> None:
    if engine.is_shape_inference_io(name):
        raise candidate_failed(precision, f"the values of {name!r} decide about shapes inside the model, which a fixed "
                               "GPU buffer cannot carry", "leave spec.engine.backend at auto")
    try:
        found = numpy_dtype(str(trt.nptype(engine.get_tensor_dtype(name)).__name__).rstrip("_"))
    except (TypeError, UserError) as error:
        raise candidate_failed(precision, f"{name!r} has the type {engine.get_tensor_dtype(name)} in the engine",
                               "leave spec.engine.backend at auto") from error
    if found != numpy_dtype(dtype):
        raise candidate_failed(precision, f"{name!r} is {found} in the engine and {dtype} in the model's interface",
                               "leave spec.engine.backend at auto")
