"""What can be said about the accuracy gate before anything is measured. No SciPy: the resolve step uses it."""

from __future__ import annotations

import bisect
import math
from importlib import metadata

from enginewright_builder.errors import UserError

METRICS = ("cosine", "relative-error", "top1", "spearman")
# Metrics of the user's: an ONNX graph of the source, or a Python entry point of the builder image.
ONNX_METRIC, PYTHON_METRIC = "onnx", "python:"
METRIC_GROUP = "enginewright.metrics"
# What the inputs of a metric's graph end in.
REFERENCE, CANDIDATE = "reference", "candidate"
CONFIDENCE = 0.95
# Below this the guards beside the metric tell nothing apart.
MIN_SAMPLES = 16
# With the fewest samples only a perfect candidate passes. Advised are twice as many or more, so that it passes
# with this many answers wrong. Twice the fewest forgive one: a sound classifier that errs on one input in a thousand is
# then refused one time in thirty (tolerance 0.02), and such were all that ``make gate-study`` saw refused.
_ADVISED, _FORGIVEN = 2, 2
# Most samples that are made up; what needs more is better asked of real ones.
MAX_SYNTHETIC = 8_192


def samples_needed(tolerance: float) -> int:
    """Fewest distinct samples with which a perfect candidate can pass: ``0.05^(1/n) ≥ 1 − tolerance``."""
    return max(MIN_SAMPLES, math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-tolerance)))


def samples_advised(tolerance: float) -> int:
    """How many leave half of ``tolerance`` to the candidate's own loss, and forgive it two wrong answers."""
    twice = _ADVISED * samples_needed(tolerance)
    return twice + bisect.bisect_left(range(twice), CONFIDENCE, key=lambda more: _caught(twice + more, tolerance))


def _caught(samples: int, tolerance: float) -> float:
    """How likely more than ``_FORGIVEN`` of ``samples`` are wrong where a share of ``tolerance`` is: Clopper and
    Pearson's bound passes so many where this is at least the confidence."""
    return 1 - sum(math.comb(samples, wrong) * tolerance**wrong * (1 - tolerance)**(samples - wrong)
                   for wrong in range(_FORGIVEN + 1))


def is_metric(metric: str) -> bool:
    return metric in (*METRICS, ONNX_METRIC) or (metric.startswith(PYTHON_METRIC) and metric != PYTHON_METRIC)


def check_gate(metric: str, tolerance: float, samples: int | None = None) -> None:
    """``samples`` None: not known yet. Raises :class:`UserError` ``MetricUnknown``, ``ToleranceInvalid`` or
    ``EvaluationTooSmall``."""
    if not is_metric(metric):
        raise UserError("MetricUnknown", f"{metric!r} is not a metric", field="spec.accuracy.metric", value=metric,
                        remedy=f"write one of {', '.join(METRICS)}, {ONNX_METRIC} or {PYTHON_METRIC}NAME")
    check_tolerance(tolerance)
    needed = samples_needed(tolerance)
    if samples is not None and samples < needed:
        raise UserError("EvaluationTooSmall", f"{samples} distinct samples cannot prove {metric} ≥ "
                        f"{1 - tolerance:g} even if all answers are right; {needed} can",
                        field="spec.accuracy.evaluation.uri", value=samples,
                        remedy=f"give at least {samples_advised(tolerance)} different samples, or raise "
                               f"spec.accuracy.maxLoss{_provable(samples)}")


def check_tolerance(tolerance: float) -> None:
    """Raises :class:`UserError` ``ToleranceInvalid``."""
    if not 0 < tolerance < 1:
        raise UserError("ToleranceInvalid", f"{tolerance} is not between 0 and 1", field="spec.accuracy.maxLoss",
                        value=tolerance, remedy="write for example 0.01: at least 99 % of the reference")


def _provable(samples: int) -> str:
    """The tightest tolerance that ``samples`` can prove, for the message."""
    if samples < MIN_SAMPLES:
        return ""
    least = 1 - (1 - CONFIDENCE) ** (1 / samples)
    return f" to at least {math.ceil(least * 1000) / 1000:g}"


def synthetic_samples(tolerance: float, least: int) -> int:
    """How many to make up where there is no evaluation data. Raises :class:`UserError` ``EvaluationTooSmall``."""
    advised = samples_advised(tolerance)
    if samples_needed(tolerance) > MAX_SYNTHETIC:
        raise UserError("EvaluationTooSmall", f"a tolerance of {tolerance:g} takes {samples_needed(tolerance)} samples "
                        f"to prove; at most {MAX_SYNTHETIC} are made up", field="spec.accuracy.maxLoss",
                        value=tolerance, remedy="raise it to 0.0004 or more, or give spec.accuracy.evaluation")
    return max(least, min(advised, MAX_SYNTHETIC))


def unknown_metric(name: str) -> UserError:
    known = ", ".join(sorted(PYTHON_METRIC + point.name for point in metadata.entry_points(group=METRIC_GROUP)))
    return UserError("MetricUnknown", f"this builder image has no metric {PYTHON_METRIC}{name}",
                     field="spec.accuracy.metric", value=f"{PYTHON_METRIC}{name}",
                     remedy=f"write one of {known}" if known else
                            f"install one into the builder image, as entry point of the group {METRIC_GROUP}")
