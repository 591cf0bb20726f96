"""TensorRT: engines tuned on the GPU that serves them, in every precision it has, for batches of all sizes or of one.

The precision is written into the ONNX (``trt_graphs``), so the same code serves TensorRT 10 and 11. Plans are not
refittable and keep their weights: a refittable engine may have one profile only, and what is served never changes its
weights.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from enginewright_builder.engines.base import Artifact, Beside, BuildContext, ExportedModel, Rung, Runner
from enginewright_builder.engines.buckets import bucket_ranges
from enginewright_builder.engines.modelopt_graphs import missing
from enginewright_builder.engines.session_parameters import BUCKETS, GRAPH_BATCHES, PROFILES
from enginewright_builder.engines.trt_build import PlanRequest, build_plan
from enginewright_builder.engines.trt_device import DEVICE, Gpu, MissingError, gpu, lacking, tensorrt, unservable
from enginewright_builder.engines.trt_graphs import QUANTISED, WEIGHTS, begin_graph, carries_quantisation, typed_graph
from enginewright_builder.engines.trt_messages import candidate_failed
from enginewright_builder.engines.trt_profiles import fixed_sizes, profiles
from enginewright_builder.engines.trt_suppression import without_suppression
from enginewright_builder.engines.trt_timing_cache import CacheKey
from enginewright_builder.errors import UserError
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.pod.python_model.trt_session import Session, ShapeNotCoveredError
from enginewright_builder.session_runner import SessionRunner
from enginewright_builder.tensors import Call, Tensors

PLAN_FILE = "model.plan"
_LADDER = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8")


class TensorRtEngine:
    name = "tensorrt"

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        """One wide rung a precision. Where there is no TensorRT or no GPU they say so; for a CPU there are none."""
        if context.device.accelerator != "gpu":
            return ()
        wanted = _LADDER if precision == "auto" else tuple(name for name in (*_LADDER, WEIGHTS) if name == precision)
        reason = unservable(context)
        device: Gpu | None = None
        if not reason:
            try:
                tensorrt()
                device = gpu()
            except MissingError as error:
                reason = str(error)
        return [Rung(backend=self.name, precision=name, unavailable=reason or _why_not(name, device, context))
                for name in wanted]

    def specialised(self, rung: Rung, context: BuildContext) -> Sequence[Rung]:
        """First an engine for batch 1 alone, which gains the most, then one with a profile for each bucket, then one
        for each other bucket. Only the second where the server's Python, which joins engines, cannot run these."""
        if len(context.buckets) < 2:
            return ()
        ranges = bucket_ranges(context.buckets)
        joinable = self.name in context.runtime.python_runtimes
        tuned = [(ranges[0],), ranges, *((one,) for one in reversed(ranges[1:]))] if joinable else [ranges]
        return [Rung(backend=self.name, precision=rung.precision, ranges=tuple(each)) for each in tuned]

    def at_a_time(self, cpus: int) -> int:
        return 1  # ModelOpt holds the graph several times, and takes all of its CPUs

    def foresees(self, rung: Rung) -> bool:
        return rung.precision in QUANTISED and not rung.ranges

    def begin(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Beside | None:
        """To write an 8-bit precision into the graph takes a minute or two of the CPU."""
        return begin_graph(rung.precision, model, context)

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
        """Raises :class:`UserError` ``CandidateFailed`` where TensorRT or ModelOpt cannot."""
        trt, device = _present(rung.precision)
        begin = time.monotonic()
        graph = without_suppression(typed_graph(rung.precision, model, context))
        graph_seconds = time.monotonic() - begin
        shapes = profiles(rung, model.interface, _example(model, context), context.max_batch_size, context.joined)
        request = PlanRequest(
            graph=graph, precision=rung.precision, interface=model.interface, profiles=shapes, quick=rung.quick,
            memory_bytes=context.device.memory_bytes, timing_caches=context.timing_caches,
            cache_key=CacheKey(product=device.product, capability=device.capability_text,
                               mig_profile=context.device.mig_profile, tensorrt=str(trt.__version__)),
            shelf=context.shelf, keys=context.keys, sparse=bool(context.weights and context.weights.sparse),
            time_left=context.time_left)
        plan = build_plan(trt, request, device, lambda part, detail: context.progress(0.1 + 0.9 * part, detail))
        target = context.folder(rung) / PLAN_FILE
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(plan)
        native = self.name in context.runtime.backends
        return Artifact(rung=rung, files={PLAN_FILE: target}, triton_backend=self.name if native else "python",
                        python_runtime=self.name, interface=model.interface, graph=graph,
                        graph_seconds=graph_seconds, runtime_version=f"tensorrt {trt.__version__}",
                        parameters=_parameters(rung, model, context, len(shapes), native=native),
                        in_python=_in_python(rung, model, context, len(shapes)))

    def load(self, artifact: Artifact) -> Runner:
        return TensorRtRunner(artifact)


class TensorRtRunner(SessionRunner):
    """The plan in this process, by the code that serves it in Triton's Python backend, without graphs that only
    traffic needs. Raises :class:`UserError` ``CandidateFailed`` for a shape that no profile takes."""

    def __init__(self, artifact: Artifact) -> None:
        self._precision = artifact.rung.precision
        plan = artifact.files[PLAN_FILE]
        super().__init__(Session(plan.parent, [plan.name], device=DEVICE))

    def __call__(self, inputs: Tensors) -> Tensors:
        try:
            return super().__call__(inputs)
        except ShapeNotCoveredError as error:
            raise self._not_covered(error) from error

    def bind(self, inputs: Tensors) -> Call:
        try:
            return super().bind(inputs)
        except ShapeNotCoveredError as error:
            raise self._not_covered(error) from error

    def _not_covered(self, error: Exception) -> UserError:
        return candidate_failed(self._precision, str(error), "state the range of every size in spec.interface, as "
                                "[batch, 1..512], and the largest batch in spec.engine.maxBatchSize")


def _why_not(precision: str, device: Gpu | None, context: BuildContext) -> str:
    if device is not None and (reason := lacking(precision, device)):
        return reason
    if reason := _why_not_weights(precision, context):
        return reason
    if precision not in QUANTISED:
        return ""
    if not context.calibration and not carries_quantisation(context):
        return "no calibration data: give spec.engine.calibration, apart from the evaluation data"
    return missing()


def _why_not_weights(precision: str, context: BuildContext) -> str:
    """Of what the graph's weights are."""
    weights = context.weights
    if weights is None:
        return ""
    if weights.foreign:
        return f"TensorRT has no {' and no '.join(weights.foreign)}, which the source brings ({weights.description})"
    if precision == WEIGHTS and not (weights.products or weights.brought):
        return "no MatMul or Gemm of the model has constant weights"
    return ""


def _present(precision: str) -> tuple[Any, Gpu]:
    try:
        return tensorrt(), gpu()
    except MissingError as error:
        raise candidate_failed(precision, str(error), "leave spec.engine.backend at auto") from error


def _example(model: ExportedModel, context: BuildContext) -> Tensors:
    return context.example if context.example is not None else example_inputs(model.interface, 1)


def _in_python(rung: Rung, model: ExportedModel, context: BuildContext, count: int) -> dict[str, str] | None:
    """Where the server has both backends."""
    both = {"tensorrt", "python"} <= set(context.runtime.backends) and "tensorrt" in context.runtime.python_runtimes
    return _parameters(rung, model, context, count, native=False) if both else None


def _parameters(rung: Rung, model: ExportedModel, context: BuildContext, count: int, *, native: bool) -> dict[str, str]:
    """CUDA graphs are captured ahead for the buckets that this engine takes; Triton's backend wants fixed sizes."""
    batches = ",".join(str(batch) for batch in context.buckets if rung.covers(batch))
    if not native:
        return {BUCKETS: batches}
    graphs = {GRAPH_BATCHES: batches} if fixed_sizes(model.interface) else {}
    return {PROFILES: ",".join(map(str, range(count))), **graphs}


