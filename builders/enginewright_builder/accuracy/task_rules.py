"""What can be said about metrics on labels before anything is measured. No SciPy: the resolve step uses it."""

from __future__ import annotations

from enginewright_builder.accuracy.rules import samples_advised, samples_needed
from enginewright_builder.contract import AccuracyRequest, TaskRequest
from enginewright_builder.errors import UserError

# Labels are numbers of classes, or names of them.
CLASSIFICATION = ("accuracy", "top5", "f1-macro", "f1-micro")
F1_METRICS = ("f1-macro", "f1-micro")
# Labels are numbers like the answers.
REGRESSION = ("mae", "rmse")
NDCG, WER = "ndcg", "wer"
# Labels are objects: class and corners.
DETECTION = ("map", "map50")
TASK_METRICS = (*CLASSIFICATION, NDCG, WER, *REGRESSION, *DETECTION)
# The smaller, the better. Errors in the label's own unit have no scale but the source's error.
ERRORS, RELATIVE = (WER, *REGRESSION), REGRESSION
# A label of a position that has none, as Hugging Face's data collators mark them.
IGNORED = -100
# Where a yes or no is asked for.
WITH_THRESHOLD = ("accuracy", *F1_METRICS)

_FIELD = "spec.accuracy.task"


def check_task(accuracy: AccuracyRequest) -> None:
    """What the request says of labels and groups, by itself. Raises :class:`UserError` ``TaskInvalid``,
    ``ToleranceInvalid`` or ``EvaluationMissing``."""
    if accuracy.evaluation is None and (accuracy.task or accuracy.group_by):
        field = f"{_FIELD}.labels" if accuracy.task else "spec.accuracy.groupBy"
        value = accuracy.task.labels if accuracy.task else accuracy.group_by
        raise UserError("EvaluationMissing", f"there is no evaluation data to have {value!r} in it", field=field,
                        value=value, remedy="add spec.accuracy.evaluation.uri")
    if accuracy.task is not None:
        _check(accuracy.task, accuracy.group_by)


def _check(task: TaskRequest, group_by: str) -> None:
    if task.metric not in TASK_METRICS:
        raise invalid(f"{task.metric!r} is not a metric on labels", "metric", task.metric,
                      f"write one of {', '.join(TASK_METRICS)}")
    if not 0 < task.tolerance < 1:
        raise UserError("ToleranceInvalid", f"{task.tolerance} is not between 0 and 1", field=f"{_FIELD}.maxLoss",
                        value=task.tolerance, remedy="write for example 0.01")
    if not task.labels or task.labels == "text":
        raise invalid(f"{task.labels!r} cannot hold labels", "labels", task.labels,
                      "name the array or field of the evaluation data that has them, such as label")
    if task.queries and task.metric != NDCG:
        raise invalid(f"queries have no meaning with {task.metric}", "queries", task.queries,
                      f"remove it, or write metric {NDCG}")
    if task.threshold is not None and task.metric not in WITH_THRESHOLD:
        raise invalid(f"a threshold has no meaning with {task.metric}", "threshold", task.threshold, "remove it")
    names = [name for name in (task.labels, task.queries, group_by) if name]
    if len(set(names)) < len(names) and group_by != task.labels:
        raise invalid(f"{task.queries!r} is named twice", "queries", task.queries,
                      "name another array or field of the evaluation data")


def columns(accuracy: AccuracyRequest) -> tuple[str, ...]:
    """Names of what the evaluation data have beside inputs. Groups may be the labels themselves."""
    task = accuracy.task
    named = (task.labels, task.queries, accuracy.group_by) if task else (accuracy.group_by,)
    return tuple(dict.fromkeys(filter(None, named)))


def check_units(task: TaskRequest, units: int) -> None:
    """``units`` are samples, or queries. Raises :class:`UserError` ``EvaluationTooSmall``."""
    needed = samples_needed(task.tolerance)
    if units < needed:
        kind = "queries" if task.queries else "labelled samples"
        raise UserError("EvaluationTooSmall", f"{units} {kind} cannot prove that {task.metric} loses at most "
                        f"{task.tolerance:g}, even if nothing is lost; {needed} can",
                        field="spec.accuracy.evaluation.uri", value=units,
                        remedy=f"give at least {samples_advised(task.tolerance)} {kind}, or raise "
                               "spec.accuracy.task.maxLoss")


def invalid(message: str, field: str, value: object, remedy: str) -> UserError:
    """A fault in what is asked of labels; ``field`` is one of ``spec.accuracy.task``."""
    return UserError("TaskInvalid", message, field=f"{_FIELD}.{field}", value=value, remedy=remedy)


def labels_invalid(message: str, value: object, remedy: str) -> UserError:
    """A fault in the labels themselves."""
    return UserError("LabelsInvalid", message, field=f"{_FIELD}.labels", value=value, remedy=remedy)
