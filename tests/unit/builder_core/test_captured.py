"""Captured requests as evaluation and calibration data of a build."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.cli import main
from enginewright_builder.contract import (
    AccuracyRequest,
    BucketRequest,
    BuildRequest,
    CapturesRequest,
    DataRequest,
    EngineRequest,
    TaskRequest,
)
from enginewright_builder.engine_store.captures import About, Capture, captures_of, publish, whole
from enginewright_builder.engine_store.signing import Keys
from enginewright_builder.errors import UserError
from enginewright_builder.quality.capture import write_samples
from enginewright_builder.resolve import resolve

Make = Callable[..., BuildRequest]
Captured = Callable[..., Capture]
KEY = b"k" * 64
OF = "prod/net"


@pytest.fixture
def captured(tmp_path: Path) -> Captured:
    """A capture of ``count`` samples for the perceptron, of ``age`` seconds, in the store of ``request_for``."""

    def make(count: int = 64, *, age: float = 0.0, seed: int = 1, of: str = OF, keys: bytes = KEY,
             repeated: int = 1) -> Capture:
        dice, until = np.random.default_rng(seed), time.time() - age
        rows = [{"x": dice.normal(size=16).astype(np.float32)} for _ in range(count // repeated)] * repeated
        folder = captures_of(tmp_path / "store", of)
        folder.mkdir(parents=True, exist_ok=True)
        about = About(of=of, revision="abc12345", since=until - 60, until=until, expires=until + 3600,
                      samples=len(rows), file="", digest="", size_bytes=0)
        return publish(folder, lambda target: write_samples(target, rows), about, Keys(current=keys))

    return make


@pytest.fixture
def asked(request_for: Make, perceptron: Path, tmp_path: Path) -> Callable[..., BuildRequest]:
    """A request whose evaluation, and calibration where wanted, are captured."""
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "key").write_bytes(KEY)

    def make(*, digest: str = "", calibration: DataRequest | None = None, samples: int = 0,
             **accuracy: Any) -> BuildRequest:
        evaluation = DataRequest(uri="captured://net", digest=digest, samples=samples)
        return request_for(perceptron, accuracy=AccuracyRequest(tolerance=0.1, evaluation=evaluation, **accuracy),
                           engine=EngineRequest(calibration=calibration),
                           captures=CapturesRequest(namespace="prod", keys=str(keys)))

    return make


def refused(request: BuildRequest, tmp_path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        resolve(request, tmp_path / "scratch")
    assert caught.value.remedy
    return caught.value


def values(rows: Any) -> set[float]:
    return {float(row["x"][0]) for row in rows.rows}


def test_the_newest_whole_capture_is_the_evaluation(asked: Make, captured: Captured, tmp_path: Path) -> None:
    captured(age=100, seed=1)
    newest = captured(age=50, seed=2)
    captured(age=10, seed=3, keys=b"o" * 64)
    captured(age=10, seed=3, of="prod/other")
    captured(age=10, seed=3, of="other/net")
    found = resolve(asked(), tmp_path / "scratch")
    assert found.source.evaluation_digest == newest.about.digest
    assert found.evaluation
    assert len(found.evaluation) == 64
    (note,) = [note for note in found.notes if "capture" in note]
    assert note.startswith(f"spec.accuracy.evaluation is capture {newest.name} of live requests to prod/net: 64 sam")


def test_a_build_reads_the_capture_that_was_resolved_though_there_is_a_newer_one(asked: Make, captured: Captured,
                                                                                 tmp_path: Path) -> None:
    first = captured(age=100, seed=1)
    request = resolve(asked(), tmp_path / "first").request
    captured(seed=2)
    again = resolve(request, tmp_path / "second")
    assert again.source.evaluation_digest == first.about.digest
    assert again.request.fingerprint() == request.fingerprint()
    other = resolve(asked(), tmp_path / "third").request
    assert other.fingerprint() != request.fingerprint(), "another capture is another engine"


@pytest.mark.parametrize("stated", ["", "evaluation", "calibration"])
def test_evaluation_and_calibration_are_halves_of_one_capture(stated: str, asked: Make, captured: Captured,
                                                              tmp_path: Path) -> None:
    """Live requests repeat each other, and no sample may be on both sides. The build finds the same halves."""
    made = captured(128, age=100, repeated=2)
    if stated:
        captured(128, seed=5)
    digest = made.about.digest
    data = DataRequest(uri="captured://net", digest=digest if stated == "calibration" else "")
    found = resolve(asked(calibration=data, digest=digest if stated == "evaluation" else ""), tmp_path / "scratch")
    assert found.evaluation
    assert found.calibration
    assert (len(found.evaluation), len(found.calibration)) == (32, 32)
    assert not values(found.evaluation) & values(found.calibration)
    assert found.source.evaluation_digest == found.source.calibration_digest == digest
    built = resolve(found.request, tmp_path / "built")
    assert built.evaluation
    assert built.calibration
    assert values(built.evaluation) == values(found.evaluation)
    assert values(built.calibration) == values(found.calibration)


def test_two_captures_are_not_halved(asked: Make, captured: Captured, tmp_path: Path) -> None:
    first, second = captured(age=100, seed=1), captured(seed=2)
    data = DataRequest(uri="captured://net", digest=first.about.digest)
    found = resolve(asked(digest=second.about.digest, calibration=data), tmp_path / "scratch")
    assert found.evaluation
    assert found.calibration
    assert (len(found.evaluation), len(found.calibration)) == (64, 64)


def test_as_many_samples_as_are_asked_for(asked: Make, captured: Captured, tmp_path: Path) -> None:
    captured(200)
    found = resolve(asked(samples=40), tmp_path / "scratch")
    assert found.evaluation
    assert len(found.evaluation) == 40


def test_without_a_capture_the_error_says_how_to_get_one(asked: Make, captured: Captured, tmp_path: Path) -> None:
    error = refused(asked(), tmp_path)
    assert (error.reason, error.field, error.value) == (
        "CaptureMissing", "spec.accuracy.evaluation.uri", "captured://net")
    assert "spec.quality.capture.intervalSeconds" in error.remedy
    captured(age=7200)
    assert refused(asked(), tmp_path).reason == "CaptureMissing", "it has expired"


def test_a_capture_that_was_resolved_and_is_gone_is_named_with_the_newest(asked: Make, captured: Captured,
                                                                          tmp_path: Path) -> None:
    newest = captured()
    error = refused(asked(digest="sha256:" + "0" * 64), tmp_path)
    assert (error.reason, error.field) == ("CaptureMissing", "spec.accuracy.evaluation.digest")
    assert newest.about.digest in error.remedy


def test_without_the_key_nothing_counts(asked: Make, captured: Captured, tmp_path: Path) -> None:
    captured()
    (tmp_path / "keys" / "key").unlink()
    assert refused(asked(), tmp_path).reason == "CaptureMissing"


@pytest.mark.parametrize(("accuracy", "field"), [
    ({"task": TaskRequest(metric="accuracy")}, "spec.accuracy.task"),
    ({"group_by": "country"}, "spec.accuracy.groupBy"),
])
def test_there_are_no_labels_in_a_capture(accuracy: dict[str, Any], field: str, asked: Make, captured: Captured,
                                          tmp_path: Path) -> None:
    captured()
    error = refused(asked(**accuracy), tmp_path)
    assert (error.reason, error.field) == ("CaptureWithoutLabels", field)


@pytest.mark.parametrize("without", ["captures", "store_path", "bucket"])
def test_by_hand_and_in_a_bucket_there_are_no_captures(without: str, asked: Make, captured: Captured,
                                                       tmp_path: Path) -> None:
    captured()
    request = asked()
    request = (dataclasses.replace(request, bucket=BucketRequest(uri="s3://engines")) if without == "bucket" else
               dataclasses.replace(request, captures=None) if without == "captures" else
               dataclasses.replace(request, store_path=""))
    error = refused(request, tmp_path)
    assert error.reason == "CaptureMissing"
    assert "samples.npz" in error.remedy


def test_samples_that_do_not_fit_the_model_are_refused_like_any_others(asked: Make, tmp_path: Path) -> None:
    folder = captures_of(tmp_path / "store", OF)
    folder.mkdir(parents=True)
    now = time.time()
    about = About(of=OF, revision="a", since=now, until=now, expires=now + 60, samples=32, file="", digest="",
                  size_bytes=0)
    rows = [{"other": np.full(16, number, np.float32)} for number in range(32)]
    publish(folder, lambda target: write_samples(target, rows), about, Keys(current=KEY))
    error = refused(asked(), tmp_path)
    assert (error.reason, error.field) == ("EvaluationDataInvalid", "spec.accuracy.evaluation.uri")


def test_the_request_of_a_job_without_captures_is_as_it_was(request_for: Make, perceptron: Path) -> None:
    assert "captures" not in request_for(perceptron).to_json()


def test_the_command_removes_what_has_expired_or_all(captured: Captured, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "store")
    captured(age=7200)
    captured()
    captured(of="prod/other")
    assert main(["captures", "--store", store, "--of", OF]) == 0
    assert capsys.readouterr().out == '{"removed":1}\n'
    assert len(list(captures_of(tmp_path / "store", OF).iterdir())) == 1
    assert main(["captures", "--store", store, "--all", "--of", OF]) == 0
    assert not captures_of(tmp_path / "store", OF).exists()
    assert main(["captures", "--store", store, "--all", "--of", OF]) == 0, "once more"
    assert len(whole(captures_of(tmp_path / "store", "prod/other"), "prod/other", Keys(current=KEY), time.time())) == 1
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["captures", "--store", store, "--of", "../other"])
