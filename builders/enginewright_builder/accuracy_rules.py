"""What can be said about the accuracy gate before anything is measured. No SciPy: the resolve step uses it."""

from __future__ import annotations

import math

from enginewright_builder.errors import UserError

METRICS = ("cosine", "relative-error", "top1", "spearman")
CONFIDENCE = 0.95
# Below this no bound means anything.
MIN_SAMPLES = 8


def samples_needed(metric: str, tolerance: float) -> int:
    """Fewest samples with which a perfect candidate can pass: for agreement ``α^(1/n) ≥ 1 − tolerance``."""
    if metric != "top1" or not 0 < tolerance < 1:
        return MIN_SAMPLES
    return max(MIN_SAMPLES, math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - tolerance)))


def check_gate(metric: str, tolerance: float, samples: int | None = None) -> None:
    """Raises :class:`UserError` ``MetricUnknown``, ``ToleranceInvalid`` or ``EvaluationTooSmall``."""
    if metric not in METRICS:
        raise UserError("MetricUnknown", f"{metric!r} is not a metric", field="spec.accuracy.metric", value=metric,
                        remedy=f"write one of {', '.join(METRICS)}")
    if not 0 < tolerance < 1:
        raise UserError("ToleranceInvalid", f"{tolerance} is not between 0 and 1", field="spec.accuracy.tolerance",
                        value=tolerance, remedy="write for example 0.01: at least 99 % of the reference")
    needed = samples_needed(metric, tolerance)
    if samples is not None and samples < needed:
        raise UserError("EvaluationTooSmall", f"{samples} samples cannot prove {metric} ≥ {1 - tolerance:g} even if "
                        f"all "
                        f"answers are right; {needed} can", field="spec.accuracy.evaluation.uri", value=samples,
                        remedy=f"give at least {needed} samples, or raise spec.accuracy.tolerance")
