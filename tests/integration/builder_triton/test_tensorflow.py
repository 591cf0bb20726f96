"""TensorFlow's process, and a whole build whose reference it is."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from enginewright_builder.contract import AccuracyRequest, BuildRequest, DataRequest, EngineRequest, SourceRequest
from enginewright_builder.errors import UserError
from enginewright_builder.models import load_model
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.models.tensorflow import TensorflowModel, _environment
from enginewright_builder.pipeline import run_build, run_resolve
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.sources.formats import locate
from enginewright_builder.sources.keras_file import LAYERS
from enginewright_builder.sources.tensorflow_ops import PLAIN, SAVERS
from enginewright_builder.sources.tensorflow_packages import PACKAGES_VARIABLE
from support.inputs.tensorflow import all_models, packages

pytestmark = [pytest.mark.triton]


def test_the_whole_build_is_held_against_tensorflow(tmp_path: Path) -> None:
    for seed, name in enumerate(("evaluation", "calibration")):
        random = np.random.default_rng(seed)
        np.savez(tmp_path / name, x=random.normal(size=(400, 16)).astype(np.float32))
    request = BuildRequest(
        model_name="model", source=SourceRequest(uri=str(all_models() / "perceptron" / "model")),
        store_path=str(tmp_path / "store"), engine=EngineRequest(
            max_batch_size=4, build_budget_seconds=900, calibration=DataRequest(uri=str(tmp_path / "calibration.npz"))),
        accuracy=AccuracyRequest(tolerance=0.1, evaluation=DataRequest(uri=str(tmp_path / "evaluation.npz"))))
    outcome = run_build(request, tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None
    assert outcome.source is not None
    assert outcome.source.format == "saved-model"
    report = json.loads((tmp_path / "store" / outcome.fingerprint / "build-report.json").read_text())
    assert report["reference"]["name"] == "SavedModel as converted, on ONNX Runtime"
    assert "fp32" in {one.precision for one in outcome.candidates if one.accuracy}


def test_answers_are_those_of_tensorflow_whatever_the_converted_graph_says(tmp_path: Path) -> None:
    """The gate's reference does not move with the ONNX, as that of an ONNX source would."""
    packages()
    model = load_model(locate(all_models() / "perceptron" / "model"), None, tmp_path)
    assert isinstance(model, TensorflowModel)
    inputs = example_inputs(model.interface, 3)
    before = model.run(inputs)["output_0"]
    model.path.write_bytes(b"")
    assert np.array_equal(model.run(inputs)["output_0"], before)
    assert np.allclose(before.sum(axis=1), 1.0)


def test_without_tensorflow_the_image_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the resolve Job already, which needs no device."""
    request = BuildRequest(model_name="model", source=SourceRequest(uri=str(all_models() / "perceptron" / "model")))
    monkeypatch.delenv(PACKAGES_VARIABLE)
    error = run_resolve(request, tmp_path, Tracker(JsonLines(io.StringIO()))).error
    assert error is not None
    assert (error.reason, error.field) == ("TensorflowMissing", "spec.source.format")
    assert "enginewright-builder-tensorflow" in error.remedy


def test_weights_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    """Of HDF5, which Keras would follow: here the file's own weights are a link to another file's."""
    path = tmp_path / "model.keras"
    script = ("import sys; sys.path.insert(0, sys.argv[1]); import h5py\n"
              "file = h5py.File(sys.argv[2], 'w'); file['layers'] = h5py.ExternalLink('/etc/hostname', '/')")
    subprocess.run([sys.executable, "-I", "-S", "-c", script, packages(), str(tmp_path / "linked.h5")], check=True)
    with zipfile.ZipFile(all_models() / "keras_layers" / "model.keras") as source, zipfile.ZipFile(path, "w") as copy:
        for name in ("metadata.json", "config.json"):
            copy.writestr(name, source.read(name))
        copy.write(tmp_path / "linked.h5", "model.weights.h5")
    with pytest.raises(UserError, match="link to what is no part of the file"):
        load_model(locate(path), None, tmp_path / "work")


def test_the_process_gets_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert "secret" not in _environment(tmp_path).values()


def test_what_is_let_through_by_name_is_there() -> None:
    """A name that TensorFlow or Keras no longer has would let nothing through, and hide a slip of the pen."""
    known = json.loads((all_models() / "known.json").read_text())
    assert (PLAIN | SAVERS) - set(known["operators"]) == set()
    assert LAYERS - set(known["layers"]) == set()
