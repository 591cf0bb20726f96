"""The whole build: from a small ONNX to a published, proven engine on a real tritonserver, and back from the store."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from enginewright_builder.competition.ladder import Gate
from enginewright_builder.competition.measure import Stopwatch
from enginewright_builder.contract import (
    MODEL_FOLDER,
    MODEL_REPOSITORY,
    REFERENCE_FOLDER,
    REPORT_FILE,
    REPORT_PAGE,
    SMOKE_FILE,
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    EngineRequest,
    ErrorReport,
    Outcome,
)
from enginewright_builder.engine_store import folder as store
from enginewright_builder.pipeline import run_build, run_resolve
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.quality.reference import Reference, read_about
from enginewright_builder.report import read_report
from support.measuring import short_measurements

__all__ = ["short_measurements"]

Make = Callable[..., BuildRequest]


def build(request: BuildRequest, scratch: Path) -> tuple[Outcome, list[dict[str, object]]]:
    stream = io.StringIO()
    scratch.mkdir()
    outcome = run_build(request, scratch, Tracker(JsonLines(stream)))
    return outcome, [json.loads(line) for line in stream.getvalue().splitlines()]


def error_of(outcome: Outcome) -> ErrorReport:
    assert not outcome.ok
    assert outcome.error is not None
    return outcome.error


class TestWithoutServer:
    def test_a_bug_is_told_with_its_step_and_is_ours(self, perceptron: Path, request_for: Make, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*arguments: object) -> None:
            raise KeyError("surprise")

        monkeypatch.setattr("enginewright_builder.pipeline.resolve", broken)
        error = error_of(build(request_for(perceptron), tmp_path / "s")[0])
        assert (error.family, error.reason) == ("bug", "InternalError")
        assert "in step resolve" in error.message

    def test_an_interrupted_build_is_tried_again(self, perceptron: Path, request_for: Make, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
        def evicted(*arguments: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("enginewright_builder.building.build", evicted)
        outcome, _ = build(request_for(perceptron), tmp_path / "s")
        assert (error_of(outcome).family, error_of(outcome).reason) == ("transient", "Interrupted")
        assert outcome.source is not None
        assert len(outcome.fingerprint) == 64
        assert [path for path in (tmp_path / "store").iterdir() if path.suffix != ".used"] == []

    def test_resolve_gives_the_same_fingerprint_as_the_build(self, perceptron: Path, request_for: Make,
                                                             tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        request = request_for(perceptron)
        resolved = run_resolve(request, tmp_path / "s", Tracker(JsonLines(io.StringIO())))
        monkeypatch.setattr("enginewright_builder.building.build", lambda *rest: 1 / 0)
        assert build(request, tmp_path / "t")[0].fingerprint == resolved.fingerprint


@pytest.mark.triton
class TestOnTriton:
    @pytest.fixture
    def request_with_data(self, perceptron: Path, request_for: Make, write_rows: Callable[..., Path]) -> BuildRequest:
        rng = np.random.default_rng(3)
        data = [write_rows(name, x=rng.normal(size=(64, 16)).astype(np.float32)) for name in ("e.npz", "c.npz")]
        # INT8 of so small a graph may lose to FP32, which is the source itself: either may ship.
        evaluation = DataRequest(uri=str(data[0]))
        return request_for(perceptron, accuracy=AccuracyRequest(tolerance=0.05, evaluation=evaluation),
                           engine=EngineRequest(max_batch_size=4, build_budget_seconds=900,
                                                calibration=DataRequest(uri=str(data[1]))))

    def test_builds_publishes_and_finds_again(self, request_with_data: BuildRequest, tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
        # However slow this machine is.
        monkeypatch.setattr("enginewright_builder.evidence.appraisal.SECONDS", float("-inf"))
        outcome, lines = build(request_with_data, tmp_path / "s")
        assert outcome.ok, outcome.error
        folder = tmp_path / "store" / outcome.fingerprint
        assert {path.name for path in folder.iterdir()} >= {MODEL_REPOSITORY, REPORT_FILE, REPORT_PAGE, "manifest.json"}
        smoke = json.loads((folder / SMOKE_FILE).read_text())
        assert (smoke["batches"], smoke["samples"]) == ([1, 4], 4)
        assert all(0 <= output["measured"] < output["limit"] < 0.2 for output in smoke["outputs"])
        assert (folder / MODEL_REPOSITORY / MODEL_FOLDER / "config.pbtxt").is_file()
        assert outcome.engine is not None
        assert outcome.engine.accuracy_low >= 0.95
        assert outcome.engine.evaluation == "held-out"
        assert outcome.engine.load_seconds > 0
        memory = outcome.engine.memory
        assert memory is not None
        assert memory.seen == "processes"
        assert 0 < memory.empty_bytes < memory.loaded_bytes <= memory.peak_bytes
        assert 0 < memory.held_bytes < memory.peak_bytes
        assert memory.concurrency > 0
        assert outcome.serving is not None
        assert outcome.serving.max_batch_size == 4
        assert "Shipped" in [one.verdict for one in outcome.candidates]
        steps = [line["step"] for line in lines]
        assert list(dict.fromkeys(steps)) == ["resolve", "fetch", "export", "ladder", "finalists", "sweep", "appraise",
                                              "repository", "verify-load", "publish", "done"]
        assert store.lookup(tmp_path / "store", outcome.fingerprint) is not None
        performance = read_report(tmp_path / "store" / outcome.fingerprint).performance
        assert performance is not None
        assert performance.notes == ()
        assert performance.before is not None
        assert performance.before.point.layers.total_ms == pytest.approx(performance.before.point.mean_ms)
        assert performance.arithmetic is not None
        assert performance.arithmetic.flops > 0
        assert {roof.name for roof in performance.roofs} >= {performance.before.name}
        assert outcome.engine.bound == performance.bound != ""
        assert outcome.engine.device_class == "cpu"
        assert outcome.engine.throughput_at_objective == performance.throughput_at_objective is not None

        assert not (tmp_path / "store" / outcome.fingerprint / REFERENCE_FOLDER).exists()

        again, lines = build(dataclasses.replace(request_with_data, mounts={"other": "/nowhere"}), tmp_path / "t")
        assert again.cache_hit
        assert again.engine == outcome.engine
        assert again.manifest_digest == outcome.manifest_digest
        assert [line["step"] for line in lines] == ["resolve", "done"]

    def test_the_best_of_each_bucket_ship_together_as_one_model(self, request_with_data: BuildRequest, tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
        """Each asked through the real server, with times of the test's own that make one win alone and one in fours."""
        fastest = {("onnxruntime fp32", 1), ("onnxruntime int8-dynamic", 4)}

        class Told(Stopwatch):
            def rounds(self, names: Sequence[str], batch: int, count: int) -> dict[str, list[float]]:
                for name in names:
                    self.warm(name, batch)
                return {name: [1.0 if (name, batch) in fastest else 2.0] * count for name in names}

        monkeypatch.setattr("enginewright_builder.building.Gate", functools.partial(Gate, stopwatch=Told))
        profiled = dataclasses.replace(request_with_data.engine, profile=True)
        outcome, lines = build(dataclasses.replace(request_with_data, keep_reference=True, engine=profiled),
                               tmp_path / "s")
        assert outcome.ok, outcome.error
        assert outcome.engine is not None
        assert [line["step"] for line in lines if line["step"] in ("finalists", "profile", "sweep")][1] == "profile"
        record = read_report(tmp_path / "store" / outcome.fingerprint)
        assert [(one.name, one.batch, one.problem) for one in record.profiles] == [
            ("onnxruntime fp32", 1, ""), ("onnxruntime int8-dynamic", 4, "")]
        assert "--profile" in record.command
        published = store.lookup(tmp_path / "store", outcome.fingerprint)
        assert published is not None
        for one in record.profiles:
            assert one.layers
            assert one.trace in published.files
        page = (tmp_path / "store" / outcome.fingerprint / REPORT_PAGE).read_text()
        assert "onnxruntime-int8-dynamic.trace.json.gz" in page
        assert (outcome.engine.triton_backend, outcome.engine.precision) == ("python", "fp32+int8-dynamic")
        told = {one.name: (one.verdict, one.reason) for one in outcome.candidates}
        assert told["onnxruntime fp32"][1].startswith("for batch 1: 2.00× the source model's throughput at batch 1")
        assert told["onnxruntime int8-dynamic"][1].startswith("for batches 2–4: 2.00× the source model's")
        assert told["onnxruntime int8-static"][0] == "Slower"
        version = tmp_path / "store" / outcome.fingerprint / MODEL_REPOSITORY / MODEL_FOLDER / "1"
        assert sorted(path.name for path in version.iterdir() if path.is_dir()) == ["m0", "m1"]
        kept = tmp_path / "store" / outcome.fingerprint / REFERENCE_FOLDER
        reference = Reference(kept, read_about(kept), 1)
        assert (reference.metric, reference.about.tolerance) == (
            request_with_data.accuracy.metric, request_with_data.accuracy.tolerance)
        assert reference.about.problem == ""
        [tensor] = reference.about.interface.inputs
        answers = reference.answer({tensor.name: np.zeros((2, *map(int, tensor.shape[1:])), np.float32)})
        assert all(len(array) == 2 for array in answers.values())
        assert set(reference.about.norms) == set(answers)
        assert min(reference.about.norms.values()) > 0

    def test_the_source_itself_is_published_where_that_is_allowed(self, request_with_data: BuildRequest, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
        """INT8 alone is asked for, and is the slower one in this test's script."""
        class Told(Stopwatch):
            def rounds(self, names: Sequence[str], batch: int, count: int) -> dict[str, list[float]]:
                for name in names:
                    self.warm(name, batch)
                return {name: [1.0 if name == "reference" else 1.25] * count for name in names}

        monkeypatch.setattr("enginewright_builder.building.Gate", functools.partial(Gate, stopwatch=Told))
        asked = dataclasses.replace(request_with_data, engine=dataclasses.replace(request_with_data.engine,
                                                                                  precision="int8"))
        refused, _ = build(asked, tmp_path / "s")
        assert error_of(refused).reason == "NotFasterThanSource"
        allowed = dataclasses.replace(asked, engine=dataclasses.replace(asked.engine, fallback="source"))
        outcome, _ = build(allowed, tmp_path / "t")
        assert outcome.ok, outcome.error
        assert outcome.engine is not None
        assert (outcome.engine.fallback, outcome.engine.precision) == ("NotFasterThanSource", "fp32")
        assert outcome.engine.speedup == pytest.approx(0.8)
        assert {one.name: one.verdict for one in outcome.candidates}["onnxruntime fp32"] == "Fallback"
        page = (tmp_path / "store" / outcome.fingerprint / REPORT_PAGE).read_text()
        assert "No candidate may be served (NotFasterThanSource); the source model itself ships" in page
        assert "--fallback source" in page

    def test_without_evaluation_data_the_proof_says_synthetic(self, perceptron: Path, request_for: Make,
                                                              tmp_path: Path) -> None:
        request = request_for(perceptron, engine=EngineRequest(precision="fp32", max_batch_size=2,
                                                               build_budget_seconds=900))
        outcome, lines = build(request, tmp_path / "s")
        assert outcome.engine is not None
        assert outcome.engine.evaluation == "synthetic"
        assert any("synthetic" in str(line["detail"]) for line in lines)
        report = json.loads((tmp_path / "store" / outcome.fingerprint / REPORT_FILE).read_text())
        assert report["accuracy"]["evaluation"] == "synthetic"
        assert any("synthetic" in note for note in report["notes"])
