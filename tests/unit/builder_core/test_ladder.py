"""The ladder with real ONNX Runtime on a small perceptron, and with engines that fail on purpose."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from enginewright_builder.competition import foresight
from enginewright_builder.competition.ascent import GRACE
from enginewright_builder.competition.attempt import Workshop, WorstLayers, answers
from enginewright_builder.competition.ladder import Climb, Gate, climb
from enginewright_builder.competition.measure import Stopwatch
from enginewright_builder.competition.refusals import NothingToServeError
from enginewright_builder.contract import AccuracyRequest, DeviceRequest, ObjectiveRequest, RuntimeRequest
from enginewright_builder.data.sets import SampleSet, synthetic_set
from enginewright_builder.engines.base import (
    Artifact,
    BatchRange,
    BuildContext,
    Engine,
    ExportedModel,
    OutOfTimeError,
    Rung,
    Runner,
)
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.engines.registry import all_engines, engines_for
from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.export import export_model
from enginewright_builder.models import SourceModel, load_model
from enginewright_builder.sources.formats import locate
from enginewright_builder.steps import Budget
from enginewright_builder.tensors import Array, Call, Tensors

Report = Callable[[float, str], None]


@pytest.fixture
def source(perceptron: Path) -> SourceModel:
    return load_model(locate(perceptron))


@pytest.fixture
def exported(source: SourceModel, tmp_path: Path) -> ExportedModel:
    return export_model(source, tmp_path / "export", [])


@pytest.fixture
def samples(source: SourceModel) -> SampleSet:
    return synthetic_set(source, 64)


@pytest.fixture
def context(source: SourceModel, tmp_path: Path) -> BuildContext:
    return BuildContext(device=DeviceRequest(), runtime=RuntimeRequest(), max_batch_size=4, workspace=tmp_path / "work",
                        calibration=synthetic_set(source, 32, seed=9).batches, progress=lambda fraction, detail: None)


class Clock:
    """Time passes only when somebody lets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def tick(self, seconds: float) -> None:
        self.now += seconds


class Scripted(Stopwatch):
    """Runs every call once, as the real one warms up, and then tells times by name and batch."""

    def __init__(self, bind: Callable[[str, int], Call], clock: Clock,
                 milliseconds: Callable[[str, int], float]) -> None:
        super().__init__(bind=bind, clock=clock, pause=clock.tick)
        self.now, self.milliseconds, self.asked = clock, milliseconds, list[tuple[str, int]]()

    def rounds(self, names: Sequence[str], batch: int, count: int) -> dict[str, list[float]]:
        self.asked += [(name, batch) for name in names]
        for name in names:
            self.warm(name, batch)
            self.now.tick(count * self.milliseconds(name, batch) / 1e3)
        return {name: [self.milliseconds(name, batch)] * count for name in names}


def gate(samples: SampleSet, tolerance: float = 0.1, metric: str = "cosine", *, clock: Clock | None = None,
         times: Mapping[str, float | Callable[[int], float]] | None = None, **changes: object) -> Gate:
    """``times`` are milliseconds for one sample by candidate, or by batch; the source takes 10, all others 5."""
    told = clock or Clock()
    script: dict[str, float | Callable[[int], float]] = {"reference": 10.0, **(times or {})}

    def milliseconds(name: str, batch: int) -> float:
        value = script.get(name, 5.0)
        return value(batch) if callable(value) else value * batch

    made = Gate(accuracy=AccuracyRequest(metric=metric, tolerance=tolerance), objective=ObjectiveRequest(),
                evaluation=samples, measure_seconds=5.0,
                stopwatch=lambda bind: Scripted(bind, told, milliseconds))
    return replace(made, **changes)  # type: ignore[arg-type]


def test_every_rung_is_built_gated_and_measured(exported: ExportedModel, source: SourceModel, samples: SampleSet,
                                                context: BuildContext) -> None:
    climbed: Climb = climb([OnnxRuntimeEngine()], "auto", exported, source, context,
                           gate(samples, times={"onnxruntime int8-dynamic": 4.0, "onnxruntime int8-static": 2.0}))
    by_precision = {one.precision: one for one in climbed.candidates}
    assert list(by_precision) == ["fp32", "int8-dynamic", "int8-static"]
    assert by_precision["fp32"].accuracy == pytest.approx(1.0)
    for one in climbed.candidates:
        assert one.accuracy is not None
        assert one.accuracy > 0.99
        assert one.reason
        assert one.p50_ms is not None
        assert one.batch == 4
    # A quarter of the bits, less what a small graph's frame takes.
    sizes = {name: one.size_bytes or 0 for name, one in by_precision.items()}
    assert sizes["int8-static"] != sizes["fp32"]
    assert climbed.speedup == pytest.approx(5.0)
    assert [one.verdict for one in climbed.candidates] == ["Slower", "Slower", "Shipped"]
    assert all(one.build_seconds is not None and one.gate_seconds is not None for one in climbed.candidates)
    assert climbed.shipped == {1: "onnxruntime int8-static", 4: "onnxruntime int8-static"}
    assert [[figure.batch for figure in one.buckets] for one in climbed.candidates] == [[1, 4]] * 3
    assert climbed.artifact.triton_backend == "python"


def test_static_int8_without_calibration_data_is_skipped_with_the_remedy(
        exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext) -> None:
    climbed = climb([OnnxRuntimeEngine()], "int8", exported, source, replace(context, calibration=()),
                    gate(samples))
    told = {one.precision: (one.verdict, one.reason) for one in climbed.candidates}
    assert told["int8-static"][0] == "Skipped"
    assert "spec.engine.calibration" in told["int8-static"][1]
    assert [one.build_seconds for one in climbed.candidates if one.verdict == "Skipped"] == [None, None]
    assert told["int8-dynamic"][0] == "Shipped"
    assert told["fp32"][0] == "Skipped"


def test_accuracy_that_no_rung_reaches_offers_full_precision(exported: ExportedModel, source: SourceModel,
                                                             samples: SampleSet, context: BuildContext) -> None:
    with pytest.raises(NothingToServeError) as caught:
        climb([OnnxRuntimeEngine()], "int8", exported, source, context,
              gate(samples, 1e-7, "relative-error"))
    error = caught.value
    assert (error.reason, error.field, error.family) == ("AccuracyNotReached", "spec.accuracy.maxLoss", "user")
    assert "offered instead: onnxruntime fp32" in error.message
    assert "the closest is onnxruntime int8-" in error.message  # not the one that is offered, which reaches it
    assert "lower bound" in error.message
    assert error.remedy.startswith("raise it, allow more precisions (spec.engine.precision: auto), or give more eval")
    verdicts = {one.precision: one.verdict for one in error.candidates}
    assert verdicts == {"fp32": "Offered", "int8-dynamic": "AccuracyRefused", "int8-static": "AccuracyRefused"}


@pytest.mark.parametrize(("budget", "ships"), [(60.0, True), (0.1, False)])
def test_three_disturbed_rounds_refuse_nothing_while_the_budget_has_time(
        exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext, budget: float,
        ships: bool) -> None:
    """The time for measurements is over after the first look, in which the machine was busy."""
    asked: dict[int, Iterator[float]] = {}

    def busy_at_first(batch: int) -> float:
        return next(asked.setdefault(batch, itertools.chain([5.0, 5.0, 15.0, 15.0], itertools.repeat(2.0)))) * batch

    clock = Clock()
    judged = gate(samples, clock=clock, times={"onnxruntime int8-dynamic": busy_at_first}, measure_seconds=0.0,
                  budget=Budget(budget, clock))
    with nullcontext() if ships else pytest.raises(NothingToServeError, match="no candidate that passes is faster"):
        climbed = climb([OnnxRuntimeEngine()], "int8", exported, source, replace(context, calibration=()), judged)
        assert set(climbed.shipped.values()) == {"onnxruntime int8-dynamic"}


class Stub:
    """An engine of one rung that serves the source's own answers, changed by ``change``."""

    name = "stub"

    def __init__(self, model: Path, change: Callable[[Tensors], Tensors] = lambda outputs: outputs,
                 failure: Exception | None = None) -> None:
        self.change, self.failure, self.closed, self._model = change, failure, 0, model

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        return [Rung(backend=self.name, precision="fp32")]

    def specialised(self, rung: Rung, context: BuildContext) -> Sequence[Rung]:
        return []

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
        if self.failure:
            raise self.failure
        return Artifact(rung=rung, files={"model.onnx": model.path}, triton_backend="python", interface=model.interface,
                        runtime_version="stub 1")

    def load(self, artifact: Artifact) -> Runner:
        inner = load_model(locate(self._model))
        stub = self

        class Running:
            def __call__(self, inputs: Tensors) -> Tensors:
                return stub.change(inner.run(inputs))

            def bind(self, inputs: Tensors) -> Call:
                return lambda: self(inputs)

            def close(self) -> None:
                stub.closed += 1

        return Running()


def test_a_second_engine_needs_no_change_elsewhere(exported: ExportedModel, source: SourceModel, samples: SampleSet,
                                                   context: BuildContext, perceptron: Path) -> None:
    stub = Stub(perceptron)
    climbed = climb([stub, OnnxRuntimeEngine()], "auto", exported, source, context, gate(samples))
    assert {one.backend for one in climbed.candidates} == {"stub", "onnxruntime"}
    assert stub.closed == 1


def test_a_trial_says_what_it_took_to_build_and_to_compare(
        exported: ExportedModel, source: SourceModel, context: BuildContext, perceptron: Path) -> None:
    clock, samples = Clock(), synthetic_set(source, 8)

    class Slow(Stub):
        def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
            clock.tick(30.0)
            return super().build(rung, model, context)

    def answered(outputs: Tensors) -> Tensors:
        clock.tick(2.0)
        return outputs

    slow = Slow(perceptron, answered)
    workshop = Workshop(engines=[slow], model=exported, context=context, accuracy=AccuracyRequest(), metric="cosine",
                        evaluation=samples, references=[source.run(batch) for batch in samples.batches], clock=clock)
    tried = workshop.attempt(slow.rungs("fp32", context)[0], True, context.progress)
    assert (tried.build_seconds, tried.gate_seconds) == (30.0, 2.0 * len(samples.batches))
    slow.failure = RuntimeError("no kernel for this device")
    failed = workshop.attempt(slow.rungs("fp32", context)[0], True, context.progress)
    assert (failed.build_seconds, failed.gate_seconds) == (30.0, None)


SEVERAL = (BatchRange(low=1, best=1, high=1), BatchRange(low=2, best=8, high=8), BatchRange(low=9, best=32, high=32))


@pytest.mark.parametrize(("ranges", "wrong", "told"), [
    (SEVERAL, 1, "in batches of 1 "), (SEVERAL, 8, "in batches of 8 "), (SEVERAL, 32, "in batches of 32 "),
    (SEVERAL[2:], 32, "in batches of 32 "), (SEVERAL[2:], 31, "in batches of 31 "), (SEVERAL, 16, ""), ((), 3, ""),
    (SEVERAL[:1], 1, "in batches of 1 "),
])
def test_every_profile_is_compared_and_one_that_is_wrong_refuses_the_engine(
        ranges: tuple[BatchRange, ...], wrong: int, told: str, exported: ExportedModel, source: SourceModel,
        context: BuildContext, perceptron: Path) -> None:
    """Sixteen samples and sixteen more of the evaluation data fill a batch of 32. Batches that no profile is tuned for
    never run."""
    samples, asked = synthetic_set(source, 72), set[int]()

    def answered(outputs: Tensors) -> Tensors:
        batch = len(next(iter(outputs.values())))
        asked.add(batch)
        return {name: np.roll(value, 1, axis=-1) if batch == wrong else value for name, value in outputs.items()}

    workshop = Workshop(engines=[Stub(perceptron, answered)], model=exported, context=context, metric="cosine",
                        accuracy=AccuracyRequest(tolerance=0.1), evaluation=samples,
                        references=[source.run(batch) for batch in samples.batches])
    rung = Rung(backend="stub", precision="fp32", ranges=ranges)
    tried = workshop.attempt(rung, True, context.progress)
    assert tried.accuracy is not None
    assert tried.accuracy.refusal(0.1).startswith(told) if told else tried.accuracy.refusal(0.1) == ""
    assert wrong in asked or not told
    assert asked <= {*rung.gated_at} if ranges else asked == {16, 8}


def test_answers_in_calls_of_any_size_are_those_of_each_batch(source: SourceModel) -> None:
    batches = [{"x": np.random.default_rng(seed).normal(size=(rows, width))}
               for seed, (rows, width) in enumerate([(16, 4), (16, 4), (3, 4), (16, 5), (1, 6), (1, 7)])]
    for size in (0, 1, 2, 7, 16, 31, 40):
        calls = list[int]()

        def double(inputs: Tensors, calls: list[int] = calls) -> Tensors:
            calls.append(len(inputs["x"]))
            return {"y": inputs["x"] * 2}

        runner = type("Doubling", (), {"__call__": lambda self, inputs, run=double: run(inputs)})()
        found = list(answers(runner, batches, size))
        assert [one["y"].tolist() for one in found] == [(batch["x"] * 2).tolist() for batch in batches]
        assert set(calls) == {size} if size else calls == [16, 16, 3, 16, 1, 1]


@pytest.mark.parametrize(("stub", "verdict", "told"), [
    ({"failure": RuntimeError("no kernel for this device")}, "Failed", "no kernel"),
    ({"change": lambda out: {name: value * np.nan for name, value in out.items()}}, "AccuracyRefused", "NaN"),
    ({"change": lambda out: {name: -value for name, value in out.items()}}, "AccuracyRefused", "lower bound"),
], ids=["fails", "nan", "wrong"])
def test_what_goes_wrong_with_one_engine_costs_that_engine(
        stub: dict[str, object], verdict: str, told: str, exported: ExportedModel, source: SourceModel,
        samples: SampleSet, context: BuildContext, perceptron: Path) -> None:
    engines: list[Engine] = [Stub(perceptron, **stub), OnnxRuntimeEngine()]  # type: ignore[arg-type]
    climbed = climb(engines, "auto", exported, source, context, gate(samples))
    lost = next(one for one in climbed.candidates if one.backend == "stub")
    assert lost.verdict == verdict
    assert told in lost.reason


def test_the_verdict_on_a_candidate_that_answers_infinity_names_the_first_layer_that_does(
        exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
        perceptron: Path, tmp_path: Path) -> None:
    """Its graph overflows in its last product, as one that was lowered to FP16 may."""
    model = onnx.load(str(exported.path))
    last = next(node for node in reversed(model.graph.node) if node.op_type in ("Gemm", "MatMul"))
    for tensor in model.graph.initializer:
        if tensor.name == last.input[1]:
            values = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.full_like(values, np.inf), tensor.name))
    overflowing = tmp_path / "overflowing.onnx"
    onnx.save(model, str(overflowing))

    class Overflowing(Stub):
        def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
            return replace(super().build(rung, model, context), graph=overflowing)

    stub = Overflowing(perceptron, change=lambda out: {name: value * np.inf for name, value in out.items()})
    climbed = climb([stub, OnnxRuntimeEngine()], "auto", exported, source, context, gate(samples))
    lost = next(one for one in climbed.candidates if one.backend == "stub")
    assert lost.verdict == "AccuracyRefused"
    assert lost.reason == ("answers NaN or infinity where the source does not; the first layer that does is "
                           f"{last.name or last.output[0]}")


def test_what_would_hit_every_engine_ends_the_build(exported: ExportedModel, source: SourceModel, samples: SampleSet,
                                                    context: BuildContext, perceptron: Path) -> None:
    with pytest.raises(MemoryError):
        climb([Stub(perceptron, failure=MemoryError())], "auto", exported, source, context, gate(samples))
    with pytest.raises(TransientError):
        climb([Stub(perceptron, failure=TransientError("X", "x"))], "auto", exported, source, context, gate(samples))


class Scores:
    """A metric of the user's that says ``score`` of every sample."""

    name = "python:test"

    def __init__(self, score: float) -> None:
        self.score = score

    def __call__(self, reference: Tensors, candidate: Tensors) -> Array:
        return np.full(len(reference["y"]), self.score)


@pytest.mark.parametrize(("score", "told"), [(1.0, "gives 1 to answers that are zero"), (0.5, "to equal answers")])
def test_a_metric_that_cannot_tell_ends_the_build_before_anything_is_built(
        score: float, told: str, exported: ExportedModel, source: SourceModel, samples: SampleSet,
        context: BuildContext, perceptron: Path) -> None:
    never = Stub(perceptron, failure=MemoryError())
    with pytest.raises(UserError, match=told) as caught:
        climb([never], "auto", exported, source, context,
              replace(gate(samples, metric="python:test"), metric=Scores(score)))
    assert caught.value.reason == "MetricInvalid"


def test_a_source_that_answers_nan_is_told_before_anything_is_built(
        exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext, perceptron: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    run = source.run
    monkeypatch.setattr(source, "run", lambda inputs: {name: value * np.nan for name, value in run(inputs).items()})
    for metric in ("", Scores(1.0)):
        with pytest.raises(UserError) as caught:
            climb([Stub(perceptron, failure=MemoryError())], "auto", exported, source, context,
                  replace(gate(samples), metric=metric))
        assert caught.value.reason == "ReferenceNotFinite"


CROWDED = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")


def on_gpu(context: BuildContext) -> BuildContext:
    return replace(context, device=DeviceRequest(accelerator="gpu", gpu_count=1))


class Small(Stub):
    """On a GPU with room for ``room`` runners."""

    def __init__(self, model: Path, room: int, rungs: Sequence[str]) -> None:
        super().__init__(model)
        self.room, self.names, self.open, self.tries = room, rungs, 0, list[str]()

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        return [Rung(backend=self.name, precision=name) for name in self.names]

    def load(self, artifact: Artifact) -> Runner:
        self.tries.append(artifact.rung.precision)
        if self.open >= self.room:
            raise CROWDED
        runner = super().load(artifact)
        self.open += 1
        close = runner.close

        def closes() -> None:
            self.open -= 1
            close()

        runner.close = closes  # type: ignore[method-assign]
        return runner


def test_a_candidate_that_the_gpu_has_no_memory_for_costs_only_itself(
        exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
        perceptron: Path) -> None:
    engine = Small(perceptron, 1, ["fp16", "fp32"])
    climbed = climb([engine], "auto", exported, source, on_gpu(context), gate(samples))
    assert {one.precision: one.verdict for one in climbed.candidates} == {"fp16": "Shipped", "fp32": "Failed"}
    assert engine.open == 0


def test_those_that_have_lost_make_room_for_the_next(
        exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
        perceptron: Path) -> None:
    engine = Small(perceptron, 2, ["fp16", "bf16", "fp32"])
    climbed = climb([engine], "auto", exported, source, on_gpu(context),
                    gate(samples, times={"stub fp16": 1.0, "stub bf16": 9.0, "stub fp32": 0.5}))
    assert engine.tries == ["fp16", "bf16", "fp32", "fp32"]
    assert climbed.winner.name == "stub fp32"
    assert engine.open == 0


def test_where_nothing_else_may_be_served_the_gpus_memory_is_why(
        exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
        perceptron: Path) -> None:
    with pytest.raises(TransientError) as caught:
        climb([Small(perceptron, 0, ["fp16"])], "auto", exported, source, on_gpu(context), gate(samples))
    assert caught.value.reason == "OutOfMemory"
    assert "stub fp16: the GPU had no memory left for it" in caught.value.message


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory"),
                                   RuntimeError("std::bad_alloc")])
def test_the_hosts_memory_ends_the_build_on_a_gpu_as_well(
        error: Exception, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
        perceptron: Path) -> None:
    with pytest.raises(type(error)):
        climb([Stub(perceptron, failure=error), OnnxRuntimeEngine()], "auto", exported, source, on_gpu(context),
              gate(samples))


def test_a_backend_that_is_not_installed_is_told() -> None:
    with pytest.raises(UserError) as caught:
        engines_for("tensorrt", [engine for engine in all_engines() if engine.name != "tensorrt"])
    assert (caught.value.reason, caught.value.value) == ("BackendUnavailable", "tensorrt")
    assert "onnxruntime" in caught.value.remedy


def test_native_backend_is_used_where_the_server_has_it(exported: ExportedModel, context: BuildContext) -> None:
    engine = OnnxRuntimeEngine()
    native = replace(context, runtime=RuntimeRequest(backends=("onnxruntime", "python")))
    artifact = engine.build(Rung(backend="onnxruntime", precision="fp32"), exported, native)
    assert artifact.triton_backend == "onnxruntime"
    assert artifact.runtime_version.startswith("onnxruntime 1.")


@pytest.mark.parametrize(("precision", "rungs"), [
    ("auto", ["fp32", "int8-dynamic", "int8-static"]), ("fp32", ["fp32"]), ("int8", ["int8-dynamic", "int8-static"]),
    ("bf16", []),
])
def test_rungs_are_most_precise_first(precision: str, rungs: list[str], context: BuildContext) -> None:
    assert [rung.precision for rung in OnnxRuntimeEngine().rungs(precision, context)] == rungs


def test_a_precision_no_engine_has_is_told(exported: ExportedModel, source: SourceModel, samples: SampleSet,
                                           context: BuildContext) -> None:
    with pytest.raises(UserError) as caught:
        climb([OnnxRuntimeEngine()], "bf16", exported, source, context, gate(samples))
    assert caught.value.reason == "PrecisionUnsupported"


class Variant(Stub):
    """An engine of several rungs on a clock of the test's own. ``answers`` change what a rung says, by its name, unless
    layers are kept. ``tuned`` are offered where the wide ones were among the fastest. ``graphs`` are seconds to write a
    precision into the graph, once for each choice of layers that are kept. A build stops at the second at which no time
    is left for it."""

    def __init__(self, model: Path, clock: Clock, precisions: Sequence[str], *, name: str = "stub",
                 tuned: Sequence[BatchRange] = (), seconds: float = 10.0, slow: Mapping[str, float] | None = None,
                 answers: Mapping[str, Callable[[Tensors], Tensors]] | None = None,
                 graphs: Mapping[str, float] | None = None) -> None:
        super().__init__(model)
        self.graphs, self.written = graphs or {}, set[tuple[str, tuple[str, ...]]]()
        self.name, self.precisions, self.clock, self.seconds = name, precisions, clock, seconds
        self.tuned, self.answers, self.slow = tuned, answers or {}, slow or {}
        self.kept, self.open, self.most_open, self.batches = list[tuple[str, ...]](), 0, 0, dict[str, set[int]]()

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        return [Rung(backend=self.name, precision=one) for one in self.precisions]

    def specialised(self, rung: Rung, context: BuildContext) -> Sequence[Rung]:
        return [replace(rung, ranges=(one,)) for one in self.tuned]

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
        graph = (rung.precision, context.keep_precise)
        writing = 0.0 if graph in self.written else self.graphs.get(rung.precision, 0.0)
        self.written.add(graph)
        for _ in range(round(self.slow.get(rung.precision, self.seconds) + writing)):
            if context.time_left() <= 0:
                raise OutOfTimeError
            self.clock.tick(1.0)
        self.kept.append(context.keep_precise)
        return replace(super().build(rung, model, context), parameters={"kept": ",".join(context.keep_precise)},
                       graph_seconds=writing)

    def load(self, artifact: Artifact) -> Runner:
        engine, inner, name = self, super().load(artifact), artifact.rung.name
        change: Callable[[Tensors], Tensors] = self.answers.get(name, lambda outputs: outputs)
        self.open += 1
        self.most_open = max(self.most_open, self.open)

        class Counted:
            def __call__(self, inputs: Tensors) -> Tensors:
                engine.batches.setdefault(name, set()).add(len(next(iter(inputs.values()))))
                outputs = inner(inputs)
                return outputs if artifact.parameters["kept"] else change(outputs)

            def bind(self, inputs: Tensors) -> Call:
                return lambda: self(inputs)

            def close(self) -> None:
                engine.open -= 1

        return Counted()


def negated(outputs: Tensors) -> Tensors:
    return {name: -value for name, value in outputs.items()}


def unknown(outputs: Tensors) -> Tensors:
    return {name: value * np.nan for name, value in outputs.items()}


FIRST = BatchRange(low=1, best=1, high=1)


def told(climbed: Climb) -> dict[str, tuple[str, str]]:
    return {one.name: (one.verdict, one.reason) for one in climbed.candidates}


class TestStages:
    def test_what_can_still_win_is_tuned_and_each_bucket_gets_its_best(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp32", "bf16", "fp16", "int8"], tuned=[FIRST],
                         answers={"stub int8": negated})
        times = {"stub fp32": 8.0, "stub bf16": 5.0, "stub fp16": 4.0, "stub int8": 1.0, "stub fp16 @1": 2.0}
        climbed = climb([engine], "auto", exported, source, context, gate(samples, times=times, clock=clock))
        assert climbed.shipped == {1: "stub fp16 @1", 4: "stub fp16"}
        assert [member.up_to for member in climbed.artifact.members] == [1, 4]
        assert set(told(climbed)) == {*times}
        assert told(climbed)["stub int8"][0] == "AccuracyRefused"
        assert told(climbed)["stub fp32"][0] == "Slower"
        assert climbed.speedup == pytest.approx(2.5)
        assert {one.name for one in climbed.built} == set(told(climbed))
        assert engine.open == 0

    def test_a_rung_for_one_batch_is_gated_at_that_batch(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        engine = Variant(perceptron, Clock(), ["fp16"], tuned=[FIRST, BatchRange(low=3, best=5, high=5)])
        climbed = climb([engine], "auto", exported, source, replace(context, max_batch_size=5, buckets=(1, 5)),
                        gate(samples))
        assert engine.batches["stub fp16 @1"] == {1}
        # The last is filled up; four run in the profile beside the exact one.
        assert engine.batches["stub fp16 @5"] == {5, 4}
        assert climbed.accuracy.value == pytest.approx(1.0)

    def test_few_runners_are_open_at_once(self, exported: ExportedModel, source: SourceModel, samples: SampleSet,
                                          context: BuildContext, perceptron: Path) -> None:
        precisions = ["fp32", *(f"p{index}" for index in range(1, 12))]
        engine = Variant(perceptron, Clock(), precisions)
        times = {f"stub {name}": 9.0 / 1.6**index for index, name in enumerate(precisions)}
        climbed = climb([engine], "auto", exported, source, context, gate(samples, times=times))
        assert climbed.winner.name == "stub p11"
        assert engine.most_open == 5
        assert told(climbed)["stub fp32"] == (
            "Slower", "passes, but at best 6.55× slower than stub p4, at batch 1, and out after 3 rounds")

    def test_batches_beyond_the_latency_objective_do_not_choose(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        engine = Variant(perceptron, Clock(), ["fp32", "int8"])
        times: dict[str, float | Callable[[int], float]] = {
            "stub fp32": 2.0, "stub int8": lambda batch: {1: 3.0, 4: 6.0}[batch]}
        wide = climb([engine], "auto", exported, source, context, gate(samples, times=times))
        assert wide.shipped == {1: "stub fp32", 4: "stub int8"}
        tight = climb([engine], "auto", exported, source, context,
                      gate(samples, times=times, objective=ObjectiveRequest(latency_ms=5.0)))
        assert tight.shipped == {1: "stub fp32", 4: "stub fp32"}
        assert tight.batch == 1


class TestMending:
    KEEP = ("layer one", "layer two")

    def climb(self, engine: Variant, times: Mapping[str, float], fixtures: tuple[ExportedModel, SourceModel, SampleSet,
              BuildContext], clock: Clock, worst: WorstLayers | None = None) -> Climb:
        exported, source, samples, context = fixtures
        return climb([engine], "auto", exported, source, context, gate(
            samples, times=times, clock=clock, worst_layers=worst or (lambda artifact, model, batches: self.KEEP)))

    @pytest.fixture
    def fixtures(self, exported: ExportedModel, source: SourceModel, samples: SampleSet,
                 context: BuildContext) -> tuple[ExportedModel, SourceModel, SampleSet, BuildContext]:
        return exported, source, samples, context

    def test_a_refused_rung_that_would_win_is_tried_once_more_and_named(
            self, fixtures: tuple[ExportedModel, SourceModel, SampleSet, BuildContext], perceptron: Path) -> None:
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp16", "int8"], answers={"stub int8": negated})
        mended = "stub int8 (kept 2 layers in higher precision)"
        climbed = self.climb(engine, {"stub fp16": 4.0, "stub int8": 2.0, mended: 2.5}, fixtures, clock)
        assert told(climbed)["stub int8"][0] == "AccuracyRefused"
        assert set(climbed.shipped.values()) == {mended}
        assert engine.kept == [(), (), self.KEEP]

    @pytest.mark.parametrize("given", [True, False], ids=["with calibration data", "without"])
    def test_the_layers_are_chosen_apart_from_the_samples_that_judge_them(
            self, given: bool, fixtures: tuple[ExportedModel, SourceModel, SampleSet, BuildContext],
            perceptron: Path) -> None:
        exported, source, samples, context = fixtures
        apart, seen = synthetic_set(source, 32, seed=9).batches if given else (), list[Sequence[Tensors]]()

        def worst(artifact: Artifact, model: ExportedModel, batches: Sequence[Tensors]) -> tuple[str, ...]:
            seen.append(batches)
            return self.KEEP

        clock = Clock()
        engine = Variant(perceptron, clock, ["fp16", "int8"], answers={"stub int8": negated})
        climb([engine], "auto", exported, source, context, gate(
            samples, times={"stub fp16": 4.0, "stub int8": 2.0}, clock=clock, worst_layers=worst, calibration=apart))
        assert [one is (apart if given else samples.batches) for one in seen] == [True]

    def test_one_that_answers_nan_is_mended_too_and_one_that_stays_wrong_is_refused_for_good(
            self, fixtures: tuple[ExportedModel, SourceModel, SampleSet, BuildContext], perceptron: Path) -> None:
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp32", "fp16"], answers={"stub fp16": unknown})
        climbed = self.climb(engine, {"stub fp16": 2.0}, fixtures, clock,
                             lambda artifact, model, batches: self.KEEP[:1])
        assert told(climbed)["stub fp16"][0] == "AccuracyRefused"
        assert told(climbed)["stub fp16 (kept 1 layer in higher precision)"][0] in ("Shipped", "Passed")
        assert len(engine.kept) == 3

    def test_a_model_with_its_own_quantisation_is_not_built_again(
            self, fixtures: tuple[ExportedModel, SourceModel, SampleSet, BuildContext], perceptron: Path) -> None:
        """Its Q/DQ is kept whole, whatever is asked for."""
        model = onnx.load(str(fixtures[0].path))
        model.graph.initializer.extend([onnx.helper.make_tensor("step", onnx.TensorProto.FLOAT, [], [0.1]),
                                        onnx.helper.make_tensor("zero", onnx.TensorProto.INT8, [], [0])])
        model.graph.node.append(onnx.helper.make_node("QuantizeLinear", ["step", "step", "zero"], ["rounded"]))
        onnx.save(model, str(fixtures[0].path))
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp16", "int8"], answers={"stub int8": negated})
        self.climb(engine, {"stub fp16": 4.0, "stub int8": 2.0}, fixtures, clock)
        assert engine.kept == [(), ()]

    @pytest.mark.parametrize("answer", [negated, unknown], ids=["wrong", "nan"])
    @pytest.mark.parametrize(("times", "worst"), [
        ({"stub fp16": 2.0, "stub int8": 2.0}, ("a",)), ({"stub fp16": 4.0, "stub int8": 2.0}, ()),
    ], ids=["it would not win", "nobody can tell the layers"])
    def test_others_are_left_alone(self, times: dict[str, float], worst: tuple[str, ...], perceptron: Path,
                                   answer: Callable[[Tensors], Tensors],
                                   fixtures: tuple[ExportedModel, SourceModel, SampleSet, BuildContext]) -> None:
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp16", "int8"], answers={"stub int8": answer})
        climbed = self.climb(engine, times, fixtures, clock, lambda artifact, model, batches: worst)
        assert engine.kept == [(), ()]
        assert climbed.winner.name == "stub fp16"


class TestBudget:
    """Builds take 10 seconds of a clock that only they and the measurements move."""

    def test_what_no_time_is_left_for_is_skipped_with_the_reason(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp32", "fp16", "int8", "fp8"])
        times = {"stub fp32": 4.0}
        climbed = climb([engine], "auto", exported, source, context,
                        gate(samples, clock=clock, budget=Budget(44.0, clock), times=times))
        verdicts = {name: verdict for name, (verdict, _) in told(climbed).items()}
        # 10 s a build, 5 s for the race and a fifth of the budget for what follows.
        assert verdicts["stub fp32"] != "Skipped"
        (skipped,) = (name for name, verdict in verdicts.items() if verdict == "Skipped")
        promise, _, why = told(climbed)[skipped][1].partition("; ")
        assert why == ("the time budget: 14 s of 44 s are left, of which this rung and what follows need about 24 s")
        assert re.fullmatch(r"could bring up to 1\.\d\d× at batch [14], would take about 10 s", promise)
        assert clock() <= 44.0

    def test_a_build_that_takes_far_longer_than_expected_is_stopped_in_time_for_what_follows(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp32", "int8"], slow={"int8": 1000.0})
        climbed = climb([engine], "auto", exported, source, context,
                        gate(samples, clock=clock, budget=Budget(100.0, clock), times={"stub fp32": 4.0}))
        verdict, reason = told(climbed)["stub int8"]
        assert verdict == "Skipped"
        assert re.match(r"its build was stopped after \d+ s: .*raise spec.engine.buildBudgetSeconds", reason)
        assert climbed.shipped[1] == "stub fp32"
        # 5 s for the race and a fifth of the budget follow, of which it may take a twentieth.
        assert 75.0 < clock() <= 100.0 + 100.0 * GRACE

    def test_as_long_as_nothing_passes_none_is_stopped(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp32"], slow={"fp32": 1000.0})
        climbed = climb([engine], "auto", exported, source, context,
                        gate(samples, clock=clock, budget=Budget(100.0, clock), times={"stub fp32": 4.0}))
        assert told(climbed)["stub fp32"][0] == "Shipped"

    def test_a_precision_that_takes_long_keeps_no_quick_one_from_being_tuned(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp32", "fp16", "int8"], slow={"int8": 40.0},
                         tuned=[BatchRange(low=1, best=1, high=1)])
        times = {"stub fp16": 1.0, "stub int8": 4.0, "stub fp32": 4.0}
        climbed = climb([engine], "auto", exported, source, context,
                        gate(samples, clock=clock, budget=Budget(110.0, clock), times=times))
        verdicts = told(climbed)
        assert verdicts["stub fp16 @1"][0] != "Skipped"
        assert clock() <= 110.0

    def test_what_its_graph_took_once_keeps_a_precision_from_no_tuning(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp32", "int8"], graphs={"int8": 40.0},
                         tuned=[BatchRange(low=1, best=1, high=1)])
        times = {"stub int8": 1.0, "stub int8 @1": 0.5, "stub fp32": 4.0}
        climbed = climb([engine], "auto", exported, source, context,
                        gate(samples, clock=clock, budget=Budget(105.0, clock), times=times))
        assert climbed.shipped[1] == "stub int8 @1"
        assert clock() <= 105.0

    def test_to_keep_layers_precise_needs_the_time_for_another_graph(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp32", "int8"], graphs={"int8": 40.0}, answers={"stub int8": negated})
        climb([engine], "auto", exported, source, context,
              gate(samples, clock=clock, budget=Budget(105.0, clock), times={"stub int8": 1.0, "stub fp32": 4.0},
                   worst_layers=lambda artifact, model, batches: ("layer",)))
        assert engine.kept == [(), ()]
        assert clock() <= 105.0

    @pytest.mark.parametrize(("refused", "shipped"), [(False, "tensorrt fp16"), (True, "tensorrt fp32")])
    def test_on_a_gpu_with_little_time_the_promising_is_built_and_the_safe_one_where_that_is_refused(
            self, refused: bool, shipped: str, exported: ExportedModel, source: SourceModel, samples: SampleSet,
            context: BuildContext, perceptron: Path) -> None:
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp32", "fp16", "fp8"], name="tensorrt",
                         answers={"tensorrt fp16": negated} if refused else {})
        climbed = climb([engine], "auto", exported, source, replace(context, device=DeviceRequest(accelerator="gpu")),
                        gate(samples, clock=clock, budget=Budget(21.0, clock)))
        assert set(climbed.shipped.values()) == {shipped}
        assert len(engine.kept) == 1 + refused

    def test_what_is_only_offered_takes_no_time_from_what_was_asked_for(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        class Asked(Variant):
            def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
                return [Rung(backend=self.name, precision=precision)]

        clock = Clock()
        climbed = climb([Asked(perceptron, clock, [])], "int8", exported, source, context,
                        gate(samples, clock=clock, budget=Budget(21.0, clock)))
        assert {name: verdict for name, (verdict, _) in told(climbed).items()} == {
            "stub int8": "Shipped", "stub fp32": "Skipped"}

    def test_the_first_is_built_as_long_as_there_is_time_at_all_and_that_is_told_before(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        clock, said = Clock(), list[str]()
        engine = Variant(perceptron, clock, ["fp32", "fp16"])
        climbed = climb([engine], "auto", exported, source,
                        replace(context, progress=lambda fraction, detail: said.append(detail)),
                        gate(samples, clock=clock, budget=Budget(3.0, clock)))
        warned = said.index("the time budget has 3 s left, and stub fp32 with what follows takes about 16 s: no more "
                            "than one candidate will be built in time")
        assert warned < said.index("building stub fp32")
        assert {name: verdict for name, (verdict, _) in told(climbed).items()} == {
            "stub fp32": "Shipped", "stub fp16": "Skipped"}

    def test_a_budget_that_is_spent_before_anything_is_built_is_told(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        clock = Clock()
        budget = Budget(30.0, clock)
        clock.tick(31.0)
        with pytest.raises(NothingToServeError) as caught:
            climb([Variant(perceptron, clock, ["fp32"])], "auto", exported, source, context,
                  gate(samples, clock=clock, budget=budget))
        error = caught.value
        assert (error.reason, error.field, error.value) == ("BudgetTooSmall", "spec.engine.buildBudgetSeconds", "30")
        assert "the source model" in error.message
        assert source.name in error.message
        assert error.remedy.startswith("write 60 or more; or write spec.engine.fallback: source")
        assert [one.verdict for one in error.candidates] == ["Skipped"]

    def test_what_was_refused_does_not_hide_that_the_rest_was_not_tried(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        clock = Clock()
        engine = Variant(perceptron, clock, ["fp16", "int8"], answers={"stub fp16": negated})
        with pytest.raises(NothingToServeError) as caught:
            climb([engine], "auto", exported, source, context,
                  gate(samples, clock=clock, budget=Budget(12.0, clock)))
        assert caught.value.reason == "BudgetTooSmall"
        assert "not tried are stub int8; offered instead: stub fp16" in caught.value.message


    def test_where_what_was_tried_is_slower_the_budget_is_what_could_help(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path) -> None:
        clock = Clock()
        with pytest.raises(NothingToServeError) as caught:
            climb([Variant(perceptron, clock, ["fp16", "int8"])], "auto", exported, source, context,
                  gate(samples, clock=clock, times={"stub fp16": 12.5}, budget=Budget(12.0, clock)))
        assert caught.value.reason == "NotFasterThanSource"
        assert "raise spec.engine.buildBudgetSeconds, which left no time for stub int8" in caught.value.remedy


class TestStopWhen:
    """Of three rungs the second one tried meets the objective."""

    def climb(self, limit_ms: float, parts: tuple[ExportedModel, SourceModel, SampleSet, BuildContext],
              perceptron: Path, **changes: object) -> dict[str, tuple[str, str]]:
        exported, source, samples, context = parts
        engine = Variant(perceptron, Clock(), ["fp32", "fp16", "int8"], answers={"stub int8": negated})
        times = {"stub fp32": 2.0, "stub fp16": 1.0, "stub int8": 0.1}
        return told(climb([engine], "auto", exported, source, context, gate(
            samples, times=times, objective=ObjectiveRequest(latency_ms=limit_ms), **changes)))  # type: ignore[arg-type]

    @pytest.fixture
    def parts(self, exported: ExportedModel, source: SourceModel, samples: SampleSet,
              context: BuildContext) -> tuple[ExportedModel, SourceModel, SampleSet, BuildContext]:
        return exported, source, samples, context

    Parts = tuple[ExportedModel, SourceModel, SampleSet, BuildContext]

    def test_no_more_is_tried_once_one_that_passes_takes_half_of_the_objective(self, parts: Parts,
                                                                               perceptron: Path) -> None:
        verdicts = self.climb(4.0, parts, perceptron, stop_when="objectiveMet")
        assert {name: verdict for name, (verdict, _) in verdicts.items()} == {
            "stub fp32": "Shipped", "stub fp16": "Skipped", "stub int8": "Skipped"}
        assert verdicts["stub fp16"][1].startswith("could bring up to 1.")
        assert verdicts["stub fp16"][1].endswith("; spec.engine.stopWhen is objectiveMet, and stub fp32 takes 2 ms at "
                                                 "batch 1 where the latency objective is 4 ms")

    def test_one_that_is_refused_or_needs_the_whole_objective_is_not_enough(self, parts: Parts,
                                                                            perceptron: Path) -> None:
        verdicts = self.climb(1.5, parts, perceptron, stop_when="objectiveMet")
        assert {name: verdict for name, (verdict, _) in verdicts.items()} == {
            "stub fp32": "Slower", "stub fp16": "Shipped", "stub int8": "AccuracyRefused"}

    def test_without_the_wish_all_are_tried(self, parts: Parts, perceptron: Path) -> None:
        assert not any(verdict == "Skipped" for verdict, _ in self.climb(1000.0, parts, perceptron).values())


class TestForesight:
    def test_what_is_begun_beside_the_builds_stands_still_while_candidates_are_timed_and_ends_with_them(
            self, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(foresight, "LEAST_CPUS", 1)
        monkeypatch.setattr(foresight, "LEAST_MEMORY_BYTES", 0)

        class Beside:
            running, still, makes_engine, made = True, False, False, False

            def pause(self) -> None:
                self.still = True

            def resume(self) -> None:
                self.still = False

            def cancel(self) -> None:
                self.running = False

        begun: dict[str, Beside] = {}

        class Foresighted(Variant):
            def at_a_time(self, cpus: int) -> int:
                return 1

            def foresees(self, rung: Rung) -> bool:
                return rung.precision == "int8"

            def begin(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Beside:
                return begun.setdefault(rung.name, Beside())

            def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
                assert not any(one.still for one in begun.values())
                return super().build(rung, model, context)

        class Watched(Scripted):
            def rounds(self, names: Sequence[str], batch: int, count: int) -> dict[str, list[float]]:
                assert all(one.still or not one.running for one in begun.values())
                return super().rounds(names, batch, count)

        clock = Clock()
        engine = Foresighted(perceptron, clock, ["fp32", "fp16", "int8"], name="tensorrt")
        made = replace(gate(samples, clock=clock), stopwatch=lambda bind: Watched(bind, clock, lambda name, batch: 5.0))
        climbed = climb([engine], "auto", exported, source, on_gpu(context), made)
        assert list(begun) == ["tensorrt int8"]
        assert not any(one.running for one in begun.values())
        assert len(climbed.built) == 3

    @pytest.mark.parametrize("passes", [True, False], ids=["it passes", "it is refused"])
    def test_a_first_trial_that_does_not_end_is_stopped_in_time_to_try_what_was_made_beside_it(
            self, passes: bool, exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext,
            perceptron: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(foresight, "LEAST_CPUS", 1)
        monkeypatch.setattr(foresight, "LEAST_MEMORY_BYTES", 0)
        clock = Clock()

        @dataclass
        class Package:
            there: float
            makes_engine = True

            @property
            def running(self) -> bool:
                return clock() < self.there

            @property
            def made(self) -> bool:
                return not self.running

            def pause(self) -> None:
                pass

            resume = cancel = pause

        class Packages(Variant):
            def at_a_time(self, cpus: int) -> int:
                return 1

            def foresees(self, rung: Rung) -> bool:
                return rung.precision == "fp16"

            def begin(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Package:
                return Package(there=100.0)

        endless = Variant(perceptron, clock, ["fp16"], name="tensorrt", seconds=10_000.0)
        packages = Packages(perceptron, clock, ["fp16"], name="torch", seconds=1.0,
                            answers={} if passes else {"torch fp16": negated})
        safe = Variant(perceptron, clock, ["fp32"], name="onnxruntime", seconds=1.0)
        budget = Budget(300.0, clock=clock)
        made = replace(gate(samples, clock=clock), budget=budget)
        climbed = climb([endless, packages, safe], "auto", exported, source, on_gpu(context), made)
        verdicts = told(climbed)
        assert verdicts["tensorrt fp16"][0] == "Skipped"
        assert "was stopped after" in verdicts["tensorrt fp16"][1]
        assert verdicts["torch fp16"][0] == ("Shipped" if passes else "AccuracyRefused")
        assert (verdicts["onnxruntime fp32"][0] == "Shipped") is not passes
        assert clock() < 300.0


class TestFallback:
    """The source is not an ONNX here, so that none of the candidates is the source itself by name."""

    @pytest.fixture
    def foreign(self, source: SourceModel) -> SourceModel:
        source.candidate = ""  # type: ignore[misc]
        return source

    def climb(self, engines: Sequence[Engine], precision: str, fallback: Sequence[Engine],
              parts: tuple[ExportedModel, SourceModel, SampleSet, BuildContext], **changes: object) -> Climb:
        exported, source, samples, context = parts
        return climb(engines, precision, exported, source, context,
                     gate(samples, fallback=fallback, **changes))  # type: ignore[arg-type]

    @pytest.fixture
    def parts(self, exported: ExportedModel, foreign: SourceModel, samples: SampleSet,
              context: BuildContext) -> tuple[ExportedModel, SourceModel, SampleSet, BuildContext]:
        return exported, foreign, samples, context

    Parts = tuple[ExportedModel, SourceModel, SampleSet, BuildContext]

    def test_the_source_serves_when_none_is_faster_and_is_not_called_faster(self, parts: Parts,
                                                                            perceptron: Path) -> None:
        engine = Variant(perceptron, Clock(), ["fp32", "int8"])
        times = {"stub fp32": 12.5, "stub int8": 11.0}
        with pytest.raises(NothingToServeError) as caught:
            self.climb([engine], "auto", (), parts, times=times)
        assert "spec.engine.fallback: source" in caught.value.remedy
        climbed = self.climb([engine], "auto", [engine], parts, times=times)
        assert climbed.fallback == "NotFasterThanSource"
        assert climbed.shipped == {1: "stub fp32", 4: "stub fp32"}
        assert climbed.speedup == pytest.approx(0.8)
        assert climbed.reference.percentile(50) == pytest.approx(10.0 * climbed.batch)
        verdict, reason = told(climbed)["stub fp32"]
        assert verdict == "Fallback"
        assert reason.startswith("the source model itself, since none that passes is faster: 0.80× the throughput of")
        assert "cosine lower bound" in reason
        assert told(climbed)["stub int8"][0] == "Slower"
        assert engine.open == 0
        summary = next(one for one in climbed.candidates if one.verdict == "Fallback")
        assert summary.serves == (1, 4)

    def test_a_budget_that_is_spent_is_overdrawn_for_it(self, parts: Parts, perceptron: Path) -> None:
        clock = Clock()
        budget = Budget(30.0, clock)
        clock.tick(31.0)
        engine = Variant(perceptron, clock, ["fp16", "fp32"], seconds=3.0)
        climbed = self.climb([engine], "auto", [engine], parts, clock=clock, budget=budget)
        assert climbed.fallback == "BudgetTooSmall"
        assert {name: verdict for name, (verdict, _) in told(climbed).items()} == {
            "stub fp32": "Fallback", "stub fp16": "Skipped"}
        # Twice as fast as the source in this script, and yet no candidate that won.
        assert climbed.speedup == pytest.approx(2.0)

    def test_a_precision_that_loses_too_much_is_replaced_by_an_engine_that_was_not_asked_for(
            self, parts: Parts, perceptron: Path) -> None:
        class Int8(Variant):
            def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
                return [Rung(backend=self.name, precision="int8")] if precision != "fp32" else []

        engine = Int8(perceptron, Clock(), ["int8"], name="tensorrt", answers={"tensorrt int8": negated})
        climbed = self.climb([engine], "int8", [engine, OnnxRuntimeEngine()], parts)
        assert climbed.fallback == "AccuracyNotReached"
        assert told(climbed)["tensorrt int8"][0] == "AccuracyRefused"
        assert told(climbed)["onnxruntime fp32"][0] == "Fallback"
        assert climbed.artifact.rung.backend == "onnxruntime"

    def test_what_was_offered_and_timed_for_the_record_alone_may_serve(self, parts: Parts, perceptron: Path) -> None:
        class Asked(Variant):
            def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
                return [Rung(backend=self.name, precision=precision)]

        engine = Asked(perceptron, Clock(), [], answers={"stub int8": negated})
        climbed = self.climb([engine], "int8", [engine], parts)
        assert {name: verdict for name, (verdict, _) in told(climbed).items()} == {
            "stub int8": "AccuracyRefused", "stub fp32": "Fallback"}
        assert len(engine.kept) == 2

    def test_an_export_that_answers_otherwise_is_not_the_source(self, parts: Parts, perceptron: Path) -> None:
        engine = Variant(perceptron, Clock(), ["fp32", "fp16"],
                         answers={"stub fp32": negated, "stub fp16": negated})
        with pytest.raises(NothingToServeError) as caught:
            self.climb([engine], "auto", [engine], parts)
        assert caught.value.reason == "AccuracyNotReached"
        assert "nor can the source model itself be served" in caught.value.message
        assert "fallback" not in caught.value.remedy
        assert len(engine.kept) == 2

    def test_one_that_breaks_leaves_the_place_to_the_next(self, parts: Parts, perceptron: Path) -> None:
        class Broken(Variant):
            def load(self, artifact: Artifact) -> Runner:
                runner = super().load(artifact)
                runner.bind = lambda inputs: 1 / 0  # type: ignore[method-assign, assignment, return-value]
                return runner

        broken = Broken(perceptron, Clock(), ["fp32"])
        climbed = self.climb([broken], "auto", [broken, OnnxRuntimeEngine()], parts)
        assert told(climbed)["stub fp32"][0] == "Failed"
        assert told(climbed)["onnxruntime fp32"][0] == "Fallback"

    def test_where_a_candidate_wins_it_changes_nothing(self, parts: Parts, perceptron: Path) -> None:
        engine = Variant(perceptron, Clock(), ["fp32", "fp16"])
        times = {"stub fp16": 2.0}
        plain = self.climb([engine], "auto", (), parts, times=times)
        allowed = self.climb([engine], "auto", [engine, OnnxRuntimeEngine()], parts, times=times)
        assert allowed.fallback == ""
        assert told(allowed) == told(plain)


def breaks(error: Exception) -> Callable[[Tensors], Call]:
    def bind(_: Tensors) -> Call:
        raise error

    return bind


@pytest.mark.parametrize(("error", "said"), [
    (ZeroDivisionError("by zero"), "fails at batch 1: ZeroDivisionError: by zero"),
    (CROWDED, "fails at batch 1: the GPU had no memory left for it"),
])
def test_a_candidate_that_breaks_while_it_is_timed_costs_only_itself(
        error: Exception, said: str, exported: ExportedModel, source: SourceModel, samples: SampleSet,
        context: BuildContext, perceptron: Path) -> None:
    class Breaking(Variant):
        def load(self, artifact: Artifact) -> Runner:
            runner = super().load(artifact)
            if artifact.rung.precision == "fp16":
                runner.bind = breaks(error)  # type: ignore[method-assign, assignment]
            return runner

    engine = Breaking(perceptron, Clock(), ["fp32", "fp16"])
    climbed = climb([engine], "auto", exported, source, on_gpu(context), gate(samples, times={"stub fp16": 1.0}))
    assert told(climbed)["stub fp16"] == ("Failed", said)
    assert climbed.winner.name == "stub fp32"
    assert engine.open == 0


def test_what_trials_took_is_kept_in_the_store_and_read_by_the_next_build(
        exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext, perceptron: Path,
        tmp_path: Path) -> None:
    clock, kept = Clock(), replace(context, timing_caches=tmp_path / "timing-caches")
    climb([Variant(perceptron, clock, ["fp32", "fp16"], seconds=25.0)], "auto", exported, source, kept,
          gate(samples, clock=clock, budget=Budget(1000.0, clock)))
    (file,) = (tmp_path / "timing-caches").glob("trials-cpu*.json")
    assert '"stub fp16": 2.5' in file.read_text()
    climbed = climb([Variant(perceptron, clock, ["fp32", "fp16"], seconds=25.0)], "auto", exported, source,
                    replace(kept, workspace=tmp_path / "second"),
                    gate(samples, clock=clock, budget=Budget(60.0, clock)))
    assert told(climbed)["stub fp16"][0] == "Skipped"
    assert "would take about 25 s; the time budget" in told(climbed)["stub fp16"][1]  # 19 s, as far as fp32 alone tells
