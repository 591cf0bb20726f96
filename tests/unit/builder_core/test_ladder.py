"""The ladder with real ONNX Runtime on a small perceptron, and with engines that fail on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from enginewright_builder.contract import AccuracyRequest, DeviceRequest, ObjectiveRequest, RuntimeRequest
from enginewright_builder.data import SampleSet, synthetic_set
from enginewright_builder.engines.base import Artifact, BuildContext, Engine, ExportedModel, Rung, Runner, Tensors
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.engines.registry import all_engines, engines_for
from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.export import export_model
from enginewright_builder.ladder import Climb, Gate, NothingToServeError, climb
from enginewright_builder.models import SourceModel, load_model
from enginewright_builder.sources.formats import locate

Report = Callable[[float, str], None]


@pytest.fixture
def source(perceptron: Path) -> SourceModel:
    return load_model(locate(perceptron))


@pytest.fixture
def exported(source: SourceModel, tmp_path: Path) -> ExportedModel:
    return export_model(source, tmp_path / "export", [])


@pytest.fixture
def samples(source: SourceModel) -> SampleSet:
    return synthetic_set(source, 48)


@pytest.fixture
def context(source: SourceModel, tmp_path: Path) -> BuildContext:
    return BuildContext(device=DeviceRequest(), runtime=RuntimeRequest(), max_batch_size=4, workspace=tmp_path / "work",
                        calibration=synthetic_set(source, 32, seed=9).batches, progress=lambda fraction, detail: None)


def gate(samples: SampleSet, tolerance: float = 0.05, metric: str = "cosine") -> Gate:
    return Gate(accuracy=AccuracyRequest(metric=metric, tolerance=tolerance), objective=ObjectiveRequest(),
                evaluation=samples, measure_seconds=0.0)


class Patient:
    """The source, slowed down: no candidate may lose to it by noise."""

    def __init__(self, source: SourceModel) -> None:
        self.name, self.interface = source.name, source.interface
        self.tokenize, self.vocabulary, self._source = source.tokenize, source.vocabulary, source
        self.candidate = ""

    def run(self, inputs: Tensors) -> Tensors:
        for _ in range(50):
            outputs = self._source.run(inputs)
        return outputs

    def export_onnx(self, path: Path, opset: int) -> None:
        self._source.export_onnx(path, opset)


def test_every_rung_is_built_gated_and_measured(exported: ExportedModel, source: SourceModel, samples: SampleSet,
                                                context: BuildContext) -> None:
    climbed: Climb = climb([OnnxRuntimeEngine()], "auto", exported, Patient(source), context, gate(samples))
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
    assert climbed.speedup > 1
    assert [one.verdict for one in climbed.candidates].count("Shipped") == 1
    assert climbed.artifact.triton_backend == "python"


def test_static_int8_without_calibration_data_is_skipped_with_the_remedy(
        exported: ExportedModel, source: SourceModel, samples: SampleSet, context: BuildContext) -> None:
    climbed = climb([OnnxRuntimeEngine()], "int8", exported, Patient(source), replace(context, calibration=()),
                    gate(samples))
    told = {one.precision: (one.verdict, one.reason) for one in climbed.candidates}
    assert told["int8-static"][0] == "Skipped"
    assert "spec.engine.calibration" in told["int8-static"][1]
    assert told["int8-dynamic"][0] == "Shipped"
    assert told["fp32"][0] == "Skipped"


def test_accuracy_that_no_rung_reaches_offers_full_precision(exported: ExportedModel, source: SourceModel,
                                                             samples: SampleSet, context: BuildContext) -> None:
    with pytest.raises(NothingToServeError) as caught:
        climb([OnnxRuntimeEngine()], "int8", exported, Patient(source), context,
              gate(samples, 1e-7, "relative-error"))
    error = caught.value
    assert (error.reason, error.field, error.family) == ("AccuracyNotReached", "spec.accuracy.tolerance", "user")
    assert "offered instead: onnxruntime fp32" in error.message
    assert "lower bound" in error.message
    assert "tolerance" in error.remedy
    verdicts = {one.precision: one.verdict for one in error.candidates}
    assert verdicts == {"fp32": "Offered", "int8-dynamic": "AccuracyRefused", "int8-static": "AccuracyRefused"}


class Stub:
    """An engine of one rung that serves the source's own answers, changed by ``change``."""

    name = "stub"

    def __init__(self, model: Path, change: Callable[[Tensors], Tensors] = lambda outputs: outputs,
                 failure: Exception | None = None) -> None:
        self.change, self.failure, self.closed, self._model = change, failure, 0, model

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        return [Rung(backend=self.name, precision="fp32")]

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

            def close(self) -> None:
                stub.closed += 1

        return Running()


def test_a_second_engine_needs_no_change_elsewhere(exported: ExportedModel, source: SourceModel, samples: SampleSet,
                                                   context: BuildContext, perceptron: Path) -> None:
    stub = Stub(perceptron)
    climbed = climb([stub, OnnxRuntimeEngine()], "auto", exported, Patient(source), context, gate(samples))
    assert {one.backend for one in climbed.candidates} == {"stub", "onnxruntime"}
    assert stub.closed == 1


@pytest.mark.parametrize(("stub", "verdict", "told"), [
    ({"failure": RuntimeError("no kernel for this device")}, "Failed", "no kernel"),
    ({"change": lambda out: {name: value * np.nan for name, value in out.items()}}, "AccuracyRefused", "NaN"),
    ({"change": lambda out: {name: -value for name, value in out.items()}}, "AccuracyRefused", "lower bound -1"),
], ids=["fails", "nan", "wrong"])
def test_what_goes_wrong_with_one_engine_costs_that_engine(
        stub: dict[str, object], verdict: str, told: str, exported: ExportedModel, source: SourceModel,
        samples: SampleSet, context: BuildContext, perceptron: Path) -> None:
    engines: list[Engine] = [Stub(perceptron, **stub), OnnxRuntimeEngine()]  # type: ignore[arg-type]
    climbed = climb(engines, "auto", exported, Patient(source), context, gate(samples))
    lost = next(one for one in climbed.candidates if one.backend == "stub")
    assert lost.verdict == verdict
    assert told in lost.reason


def test_what_would_hit_every_engine_ends_the_build(exported: ExportedModel, source: SourceModel, samples: SampleSet,
                                                    context: BuildContext, perceptron: Path) -> None:
    with pytest.raises(MemoryError):
        climb([Stub(perceptron, failure=MemoryError())], "auto", exported, source, context, gate(samples))
    with pytest.raises(TransientError):
        climb([Stub(perceptron, failure=TransientError("X", "x"))], "auto", exported, source, context, gate(samples))


def test_a_backend_that_is_not_installed_is_told() -> None:
    with pytest.raises(UserError) as caught:
        engines_for("tensorrt", all_engines())
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
