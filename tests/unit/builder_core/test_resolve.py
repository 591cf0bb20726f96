"""All that is refused before a device is used."""

from __future__ import annotations

import dataclasses
import io
import json
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from enginewright_builder.contract import (
    MANIFEST_FILE,
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    DeviceRequest,
    EngineRequest,
    ErrorReport,
    Interface,
    Padding,
    SourceRequest,
    TensorSpec,
)
from enginewright_builder.errors import UserError
from enginewright_builder.pipeline import run_resolve
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.resolve import Resolved, resolve
from enginewright_builder.sources.places import as_written
from enginewright_builder.tensors import Array

Make = Callable[..., BuildRequest]
Rows = Callable[..., Path]
GPU = DeviceRequest(accelerator="gpu", products=("NVIDIA-H200",), gpu_count=1)


def refused(request: BuildRequest, tmp_path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        resolve(request, tmp_path / "scratch")
    assert caught.value.remedy
    return caught.value


def evaluation(path: Path, metric: str = "cosine", tolerance: float = 0.1, samples: int = 0) -> AccuracyRequest:
    return AccuracyRequest(metric=metric, tolerance=tolerance, evaluation=DataRequest(uri=str(path), samples=samples))


def calibration(path: Path) -> EngineRequest:
    return EngineRequest(calibration=DataRequest(uri=str(path)))


def test_finds_digests_of_everything(perceptron: Path, request_for: Make, write_rows: Rows, tmp_path: Path) -> None:
    request = request_for(perceptron, accuracy=evaluation(write_rows("e.npz")),
                          engine=calibration(write_rows("c.npz", seed=2)))
    resolved: Resolved = resolve(request, tmp_path / "scratch")
    assert resolved.source.format == "onnx"
    assert resolved.source.size_bytes == perceptron.stat().st_size
    digests = {resolved.source.digest, resolved.source.evaluation_digest, resolved.source.calibration_digest}
    assert len(digests) == 3
    assert all(digest.startswith("sha256:") for digest in digests)
    assert len(resolved.request.fingerprint()) == 64


def test_the_fingerprint_follows_content_not_place(perceptron: Path, request_for: Make, tmp_path: Path) -> None:
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(perceptron.read_bytes())
    one, other = (resolve(request_for(path), tmp_path / "s").request.fingerprint() for path in (perceptron, copy))
    assert one == other


@pytest.mark.parametrize(("engine", "device", "reason", "field"), [
    ({"precision": "fp8"}, DeviceRequest(), "PrecisionUnsupported", "spec.engine.precision"),
    ({"precision": "fp16"}, DeviceRequest(), "PrecisionUnsupported", "spec.engine.precision"),
    ({"precision": "int2"}, GPU, "PrecisionUnsupported", "spec.engine.precision"),
    ({"backend": "tensorrt"}, DeviceRequest(), "BackendUnavailable", "spec.engine.backend"),
    ({"backend": "tvm"}, GPU, "BackendUnavailable", "spec.engine.backend"),
])
def test_what_the_accelerator_cannot_do(engine: dict[str, str], device: DeviceRequest, reason: str, field: str,
                                        perceptron: Path, request_for: Make, tmp_path: Path) -> None:
    error = refused(request_for(perceptron, engine=EngineRequest(**engine), device=device), tmp_path)  # type: ignore[arg-type]
    assert (error.reason, error.field, error.value) == (reason, field, next(iter(engine.values())))


@pytest.mark.parametrize(("accuracy", "reason"), [
    (AccuracyRequest(metric="bleu"), "MetricUnknown"), (AccuracyRequest(tolerance=0.0), "ToleranceInvalid"),
    (AccuracyRequest(tolerance=1.5), "ToleranceInvalid"), (AccuracyRequest(tolerance=-0.1), "ToleranceInvalid"),
])
def test_absurd_gate(accuracy: AccuracyRequest, reason: str, perceptron: Path, request_for: Make,
                     tmp_path: Path) -> None:
    assert refused(request_for(perceptron, accuracy=accuracy), tmp_path).reason == reason


@pytest.mark.parametrize(("engine", "field"), [
    (EngineRequest(max_batch_size=0), "spec.engine.maxBatchSize"),
    (EngineRequest(max_batch_size=-4), "spec.engine.maxBatchSize"),
    (EngineRequest(build_budget_seconds=0), "spec.engine.buildBudgetSeconds"),
])
def test_absurd_numbers(engine: EngineRequest, field: str, perceptron: Path, request_for: Make, tmp_path: Path) -> None:
    assert refused(request_for(perceptron, engine=engine), tmp_path).field == field


def test_too_few_samples_to_prove_anything(perceptron: Path, request_for: Make, write_rows: Rows,
                                           tmp_path: Path) -> None:
    few = refused(request_for(perceptron, accuracy=evaluation(write_rows("e.npz", count=15))), tmp_path)
    assert few.reason == "EvaluationTooSmall"
    for metric in ("cosine", "top1"):
        tight = refused(request_for(perceptron, accuracy=evaluation(write_rows("e.npz", count=200), metric, 0.01)),
                        tmp_path)
        assert "299" in tight.message
        assert "to at least 0.015" in tight.remedy
    cut = refused(request_for(perceptron, accuracy=evaluation(write_rows("e.npz"), samples=4)), tmp_path)
    assert "4 distinct samples" in cut.message


def test_samples_told_again_count_once(perceptron: Path, request_for: Make, write_rows: Rows, tmp_path: Path) -> None:
    rows = np.load(write_rows("e.npz", count=20))["x"]
    again = write_rows("again.npz", x=np.concatenate([rows] * 20))
    error = refused(request_for(perceptron, accuracy=evaluation(again, tolerance=0.05)), tmp_path)
    assert "20 distinct samples cannot prove" in error.message
    resolved = resolve(request_for(perceptron, accuracy=evaluation(again, tolerance=0.2)), tmp_path / "s")
    assert resolved.evaluation is not None
    assert len(resolved.evaluation) == 20
    assert "380 of 400 evaluation samples" in resolved.notes[0]


def test_negative_number_of_samples(perceptron: Path, request_for: Make, write_rows: Rows, tmp_path: Path) -> None:
    error = refused(request_for(perceptron, accuracy=evaluation(write_rows("e.npz"), samples=-1)), tmp_path)
    assert error.field == "spec.accuracy.evaluation.samples"


class TestCalibrationApartFromEvaluation:
    def test_the_same_file(self, perceptron: Path, request_for: Make, write_rows: Rows, tmp_path: Path) -> None:
        path = write_rows("d.npz")
        error = refused(request_for(perceptron, accuracy=evaluation(path), engine=calibration(path)), tmp_path)
        assert (error.reason, error.field) == ("CalibrationEqualsEvaluation", "spec.engine.calibration.uri")

    def test_the_same_samples_in_another_order(self, perceptron: Path, request_for: Make, write_rows: Rows,
                                               tmp_path: Path) -> None:
        rows = np.load(write_rows("e.npz"))["x"]
        shuffled = write_rows("c.npz", x=rows[::-1])
        error = refused(request_for(perceptron, accuracy=evaluation(tmp_path / "e.npz"), engine=calibration(shuffled)),
                        tmp_path)
        assert error.reason == "CalibrationEqualsEvaluation"

    @pytest.mark.parametrize("kind", ["half", "double", "jsonl", "subset"])
    def test_the_same_samples_in_other_clothes(self, kind: str, perceptron: Path, request_for: Make, write_rows: Rows,
                                               tmp_path: Path) -> None:
        rows = np.load(write_rows("e.npz"))["x"]
        copies = {"half": rows.astype(np.float16), "double": rows.astype(np.float64), "subset": rows[:6]}
        if kind == "jsonl":
            other = tmp_path / "c.jsonl"
            other.write_text("".join(json.dumps({"x": row.tolist()}) + "\n" for row in rows))
        else:
            other = write_rows("c.npz", x=copies[kind])
        error = refused(request_for(perceptron, accuracy=evaluation(tmp_path / "e.npz"), engine=calibration(other)),
                        tmp_path)
        count = 6 if kind == "subset" else 32
        assert error.reason == "CalibrationEqualsEvaluation"
        assert f"{count} of {count} calibration samples" in error.message
        assert "other samples" in error.remedy

    def test_a_few_shared_samples_are_left_out(self, perceptron: Path, request_for: Make, write_rows: Rows,
                                               tmp_path: Path) -> None:
        rows = np.load(write_rows("e.npz"))["x"]
        other = np.load(write_rows("o.npz", seed=2))["x"]
        mixed = write_rows("c.npz", x=np.concatenate([other, rows[:2]]))
        resolved = resolve(request_for(perceptron, accuracy=evaluation(tmp_path / "e.npz"), engine=calibration(mixed)),
                           tmp_path / "s")
        assert resolved.calibration is not None
        assert len(resolved.calibration) == len(other)
        assert "left 2 calibration samples out" in resolved.notes[0]


@pytest.mark.parametrize("arrays", [{"x": np.zeros((9, 3), np.float32)}, {"wrong": np.zeros((9, 16), np.float32)}],
                         ids=["shape", "name"])
def test_wrongly_shaped_evaluation_is_known_before_a_device_is(arrays: dict[str, Array], perceptron: Path,
                                                               request_for: Make, write_rows: Rows,
                                                               tmp_path: Path) -> None:
    error = refused(request_for(perceptron, accuracy=evaluation(write_rows("e.npz", **arrays))), tmp_path)
    assert error.reason == "EvaluationDataInvalid"


def test_texts_for_a_model_without_tokenizer(perceptron: Path, request_for: Make, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"text": "a"}\n' * 8)
    error = refused(request_for(perceptron, accuracy=evaluation(tmp_path / "e.jsonl")), tmp_path)
    assert error.reason == "EvaluationDataInvalid"


@pytest.mark.parametrize(("spec", "told"), [
    (TensorSpec(name="x", dtype="float33", shape=("batch", 16)), "float33"),
    (TensorSpec(name="x", dtype="float32", shape=(4, 16)), "fixed size 4"),
    (TensorSpec(name="x", dtype="float32", shape=("batch", "9..3")), "no size"),
    (TensorSpec(name="x", dtype="float32", shape=("batch", -3)), "no size"),
    (TensorSpec(name="x", dtype="float64", shape=("batch", 16)),
     "'x' is float32 [batch, 16] in the model float64 [batch, 16] write dtype: float32, shape: [batch, 16]"),
])
def test_absurd_interface(spec: TensorSpec, told: str, perceptron: Path, request_for: Make, tmp_path: Path) -> None:
    error = refused(request_for(perceptron, interface=Interface(inputs=(spec,))), tmp_path)
    assert error.reason == "InterfaceInvalid"
    assert told in f"{error.message} {error.value} {error.remedy}"


def test_padding_that_does_not_fit_the_graph_is_refused_before_a_device_is_used(perceptron: Path, request_for: Make,
                                                                                tmp_path: Path) -> None:
    error = refused(request_for(perceptron, interface=Interface(padding=Padding(mask="attention_mask"))), tmp_path)
    assert (error.reason, error.field, error.value) == ("InterfaceInvalid", "spec.interface.padding.mask",
                                                        "attention_mask")


def test_torchscript_without_an_interface_is_refused_before_a_device_is_used(request_for: Make, tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    members = {"constants.pkl": b"", "version": b"3", "data.pkl": b"\x80\x02c__torch__.own\nNet\nq.",
               "code/__torch__/own.py": _FORWARDS}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(f"m/{name}", content)
    error = refused(request_for(path), tmp_path)
    assert (error.reason, error.field) == ("InterfaceNeeded", "spec.interface")
    assert re.findall(r"name: ([\w.]+)", error.remedy) == ["ids", "rows.0", "rows.1", "by.key", "by.other", "most"]


_FORWARDS = b"""class Layer(Module):
  def forward(self: __torch__.own.NetLayer,
    x: Tensor) -> Tensor:
    return x
class Net(Module):
  def forward(self: __torch__.own.Net,
    ids: Optional[Tensor],
    rows: Tuple[Tensor, Tensor],
    by: Dict[str, Tensor],
    most: int=3) -> Tuple[Tensor, Tensor]:
    return rows
"""


def test_missing_store(perceptron: Path, request_for: Make, tmp_path: Path) -> None:
    request = dataclasses.replace(request_for(perceptron), store_path=str(tmp_path / "no volume" / "store"))
    assert refused(request, tmp_path).reason == "StoreMissing"


def test_an_engine_that_is_there_takes_no_room(perceptron: Path, request_for: Make, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the right to write: it is served as it is."""
    request = request_for(perceptron)
    fingerprint = resolve(request, tmp_path / "s").request.fingerprint()
    free = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    assert refused(request, tmp_path).reason == "StoreFull"
    folder = Path(request.store_path) / fingerprint
    folder.mkdir()
    (folder / MANIFEST_FILE).write_text("{}")
    assert resolve(request, tmp_path / "s").request.fingerprint() == fingerprint


def test_digest_of_other_content(perceptron: Path, request_for: Make, tmp_path: Path) -> None:
    source = SourceRequest(uri=str(perceptron), digest="sha256:" + "1" * 64)
    assert refused(request_for(perceptron, source=source), tmp_path).reason == "DigestMismatch"


def test_resolve_never_imports_what_a_small_pod_cannot_afford() -> None:
    code = ("import sys, enginewright_builder.cli, enginewright_builder.resolve\n"
            "heavy = {'torch', 'transformers', 'onnxruntime', 'scipy', 'tritonclient', 'onnx'} & set(sys.modules)\n"
            "print(', '.join(sorted(heavy)))")
    path = str(Path(sys.modules["enginewright_builder"].__path__[0]).parent)
    ran = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True,
                         check=True)
    assert ran.stdout.strip() == ""


def told(request: BuildRequest, scratch: Path) -> ErrorReport:
    error = run_resolve(request, scratch, Tracker(JsonLines(io.StringIO()))).error
    assert error is not None
    return error


def test_a_file_on_a_claim_is_called_as_the_user_called_it(request_for: Make, tmp_path: Path) -> None:
    mount = tmp_path / "sources" / "models"
    (mount / "bert").mkdir(parents=True)
    (mount / "bert" / "pytorch_model.bin").write_bytes(pickle.dumps({"weights": 1}, protocol=2))
    request = dataclasses.replace(request_for(mount), source=SourceRequest(uri="pvc://models/bert"),
                                  mounts={"models": str(mount)})
    error = told(request, tmp_path / "scratch")
    assert (error.reason, error.value) == ("PickleRefused", "pvc://models/bert")
    assert str(tmp_path) not in f"{error.message} {error.value} {error.remedy}"


@pytest.mark.parametrize(("text", "wanted"), [
    ("/sources/a", "pvc://a"), ("/sources/a/x.onnx has 3 bytes", "pvc://a/x.onnx has 3 bytes"),
    ("'/sources/a' and '/sources/a-b/c'", "'pvc://a' and 'pvc://a-b/c'"),
    ("/scratch/source/model.onnx", "https://host/v1/model.onnx"), ("/sources/other", "/sources/other"),
    ("/scratch/source/evaluation", "https://host/v1/evaluation"), ("/scratch/evaluation/e.npz", "pvc://a/e.npz"),
])
def test_paths_of_the_pod_become_uris(request_for: Make, text: str, wanted: str) -> None:
    request = dataclasses.replace(
        request_for(Path("/nowhere")), source=SourceRequest(uri="https://host/v1/model.onnx"),
        accuracy=AccuracyRequest(evaluation=DataRequest(uri="pvc://a/e.npz")),
        mounts={"a": "/sources/a", "a-b": "/sources/a-b"})
    report = ErrorReport(family="user", reason="SourceCorrupt", message=text, value=text, remedy=text)
    named = as_written(report, request, Path("/scratch"))
    assert (named.message, named.value, named.remedy) == (wanted, wanted, wanted)
