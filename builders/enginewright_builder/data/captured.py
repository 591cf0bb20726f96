"""Evaluation and calibration data that were captured of live requests: ``captured://MODEL``.

They have inputs and no labels. Where both sets are of one capture, each gets a half of its different samples.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from enginewright_builder.contract import CAPTURE_SECRET, CAPTURED_SCHEME, BuildRequest, CapturesRequest, DataRequest
from enginewright_builder.data.files import EVALUATION, DataField, SampleFile
from enginewright_builder.engine_store.captures import Capture, captures_of, taken, whole
from enginewright_builder.engine_store.signing import read_keys
from enginewright_builder.errors import TransientError, UserError


def is_captured(data: DataRequest | None) -> bool:
    return data is not None and data.uri.startswith(CAPTURED_SCHEME)


def of_one(request: BuildRequest) -> bool:
    """Whether evaluation and calibration are halves of one capture."""
    evaluation, calibration = request.accuracy.evaluation, request.engine.calibration
    if evaluation is None or calibration is None or not is_captured(evaluation) or evaluation.uri != calibration.uri:
        return False
    return not evaluation.digest or not calibration.digest or evaluation.digest == calibration.digest


def halves(request: BuildRequest) -> tuple[slice, slice]:
    """Which of the different samples are for the evaluation, and which for the calibration."""
    return (slice(0, None, 2), slice(1, None, 2)) if of_one(request) else (slice(None), slice(None))


def evaluation_of(request: BuildRequest) -> DataRequest | None:
    """Where both sets are of one capture, a digest that is stated of either is that of both."""
    evaluation, calibration = request.accuracy.evaluation, request.engine.calibration
    if evaluation is None or calibration is None or not of_one(request):
        return evaluation
    return replace(evaluation, digest=evaluation.digest or calibration.digest)


def calibration_of(request: BuildRequest, digest: str) -> DataRequest | None:
    """Where both sets are of one capture, that of the evaluation, by its ``digest``: a monitor may have written another
    meanwhile."""
    calibration = request.engine.calibration
    return replace(calibration, digest=digest) if calibration and of_one(request) else calibration


def check_no_labels(request: BuildRequest) -> None:
    """Raises :class:`UserError` ``CaptureWithoutLabels``."""
    accuracy = request.accuracy
    if not is_captured(accuracy.evaluation) or not (accuracy.task or accuracy.group_by):
        return
    field, value = (("task", accuracy.task.metric) if accuracy.task else ("groupBy", accuracy.group_by))
    raise UserError("CaptureWithoutLabels", "captured requests have inputs alone, no labels and no groups",
                    field=f"spec.accuracy.{field}", value=value,
                    remedy="remove it: on captured requests agreement with the source model is measured; or name "
                           "evaluation data with labels in spec.accuracy.evaluation.uri")


def capture_for(request: BuildRequest, data: DataRequest, where: DataField = EVALUATION) -> Capture:
    """The newest whole capture, or the one of ``data.digest``. Raises :class:`UserError` ``CaptureMissing``."""
    model = data.uri.removeprefix(CAPTURED_SCHEME)
    if not request.store_path or request.bucket or request.captures is None:
        raise UserError("CaptureMissing", "captures are read by Jobs of the operator, from a store on a volume",
                        field=where.path, value=data.uri,
                        remedy="by hand name the capture's own file, samples.npz or samples.jsonl")
    found = _all(request.store_path, request.captures, model)
    if not found:
        raise UserError("CaptureMissing", f"the store has no capture of model {model} that is whole, signed and not "
                        "expired", field=where.path, value=data.uri,
                        remedy=f"let OptimisedModel {model} capture for one spec.quality.capture.intervalSeconds with "
                               "traffic, then run kubectl optimisedmodel retry")
    for capture in found:
        if data.digest in ("", capture.about.digest):
            return capture
    raise UserError("CaptureMissing", f"no capture of model {model} has digest {data.digest}, which is stated or was "
                    "found when the data were resolved: it has expired or was deleted",
                    field=where.path.removesuffix("uri") + "digest", value=data.digest,
                    remedy=f"write {found[0].about.digest}, the digest of the newest, of {found[0].about.samples} "
                           "samples; raise spec.quality.capture.retentionSeconds to keep captures longer")


def fetch_capture(request: BuildRequest, data: DataRequest, where: DataField, scratch: Path) -> tuple[Path, str, str]:
    """The samples' file, its digest, and what the report says of it. Raises as :func:`capture_for`, and
    :class:`TransientError` ``StoreUnavailable``."""
    capture = capture_for(request, data, where)
    try:
        path = taken(capture, scratch)
    except OSError as error:
        raise TransientError("StoreUnavailable", f"capture {capture.name} cannot be read: {error}", field=where.path,
                             value=data.uri, remedy="it is tried again") from error
    about = capture.about
    return path, about.digest, (f"{where.path.rpartition('.')[0]} is capture {capture.name} of live requests to "
                                f"{about.of}: {about.samples} samples from {_day(about.since)} to {_day(about.until)}")


def part_of(samples: SampleFile, part: slice) -> SampleFile:
    """Of the different samples: live requests repeat each other, and no sample may be in both halves."""
    if part == slice(None):
        return samples
    distinct = samples.distinct()
    return distinct.picked(range(len(distinct))[part])


def _all(store_path: str, captures: CapturesRequest, model: str) -> list[Capture]:
    """None where the Secret is not there: then no monitor has signed anything."""
    of = f"{captures.namespace}/{model}"
    try:
        keys = read_keys(captures.keys, CAPTURE_SECRET)
    except TransientError:
        return []
    return whole(captures_of(Path(store_path), of), of, keys, time.time()) if keys else []


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
