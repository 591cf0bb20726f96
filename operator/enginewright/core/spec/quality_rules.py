"""What is wrong with a quality monitor that a spec asks for."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright.core.problems import Problem
from enginewright.core.quality import samples_needed
from enginewright.core.quantity import parse_quantity
from enginewright.core.spec.base import in_bucket
from enginewright.core.spec.model import Spec
from enginewright.core.spec.parse import show
from enginewright.core.spec.quality import CAPTURES_KEPT
from enginewright.core.spec.source import DataSpec
from enginewright_builder.contract import CAPTURED_SCHEME

# ONNX Runtime, NumPy and what is left free (``enginewright_builder.quality``) take 210 MiB, without a model.
LEAST_MEMORY = 256 << 20
TOO_LITTLE = "is less than the monitor needs for any model"
ENOUGH = "write at least 256Mi, and more for a large source model"


def too_little(limit: str | int) -> bool:
    """Of memory. Raises ValueError when ``limit`` is no quantity."""
    return parse_quantity(limit) < LEAST_MEMORY


def quality_problems(spec: Spec) -> Iterator[Problem]:
    if spec.quality is None:
        return
    needed = samples_needed(spec.accuracy.max_loss)
    if spec.quality.window < needed:
        yield Problem(
            field="spec.quality.window", value=show(spec.quality.window),
            message=f"is less than the {needed} answers that can show a tolerance of {spec.accuracy.max_loss:g} even "
                    "if all agree",
            remedy=f"write at least {2 * needed}, or raise spec.accuracy.maxLoss")
    yield from _capture_problems(spec)
    limit = spec.quality.resources.limits.get("memory")
    if limit is not None and too_little(limit):
        yield Problem(field="spec.quality.resources.limits.memory", value=show(limit), message=TOO_LITTLE,
                      remedy=ENOUGH)


def captured_problems(spec: Spec) -> Iterator[Problem]:
    """Data that were captured of live requests."""
    evaluation, accuracy = spec.accuracy.evaluation, spec.accuracy
    fields = {"spec.accuracy.evaluation.uri": evaluation, "spec.engine.calibration.uri": spec.engine.calibration}
    for field, data in fields.items():
        if is_captured(data) and in_bucket(spec.store.uri):
            yield Problem(field=field, value=show(data and data.uri),
                          message="needs a store on a volume: captures lie in it",
                          remedy="write pvc://CLAIM into spec.store.uri, or name other data")
    if is_captured(evaluation):
        for name, value in (("task", accuracy.task and accuracy.task.metric), ("groupBy", accuracy.group_by)):
            if value:
                yield Problem(field=f"spec.accuracy.{name}", value=show(value),
                              message="needs labels or groups in the evaluation data, and captured requests have "
                                      "inputs alone",
                              remedy="remove it: agreement with the source model is measured; or name evaluation "
                                     "data that have them")


def is_captured(data: DataSpec | None) -> bool:
    return data is not None and data.uri.startswith(CAPTURED_SCHEME)


def _capture_problems(spec: Spec) -> Iterator[Problem]:
    capture = spec.quality.capture if spec.quality else None
    if spec.quality is None or capture is None:
        return
    where = "spec.quality.capture"
    if in_bucket(spec.store.uri):
        yield Problem(field=where, value=show(spec.store.uri),
                      message="needs a store on a volume: rights to a bucket cannot be narrowed to a folder, and no "
                              "serving pod may write to all of it",
                      remedy="write pvc://CLAIM into spec.store.uri, or remove it")
    shortest, longest = capture.interval_seconds, CAPTURES_KEPT * capture.interval_seconds
    if not shortest <= capture.retention_seconds <= longest:
        yield Problem(field=f"{where}.retentionSeconds", value=show(capture.retention_seconds),
                      message=f"is not from {shortest} to {longest}, one to {CAPTURES_KEPT} times intervalSeconds",
                      remedy="write a number between these, or another intervalSeconds")
    limit = spec.quality.resources.limits.get("memory")
    if limit is not None and parse_quantity(limit) < LEAST_MEMORY + (capture.max_mebibytes << 20):
        yield Problem(field=f"{where}.maxMebibytes", value=show(capture.max_mebibytes),
                      message=f"does not fit into spec.quality.resources.limits.memory {limit}, of which the monitor "
                              f"needs {LEAST_MEMORY >> 20}Mi without them",
                      remedy="lower it, or raise the limit")
