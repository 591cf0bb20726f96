"""What a build says, for a person who wrote options and no OptimisedModel: fields go by the names of their options."""

from __future__ import annotations

import re
from dataclasses import replace

from enginewright_builder.contract import ErrorReport, Outcome

# Of fields of ``spec``, without the ``uri`` that some end with.
OPTIONS = {
    "source": "--model",
    "source.format": "--format",
    "interface": "--interface",
    "store": "--output",
    "engine.backend": "--backend",
    "engine.precision": "--precision",
    "engine.calibration": "--calibration",
    "engine.maxBatchSize": "--max-batch-size",
    "engine.buildBudgetSeconds": "--budget-seconds",
    "engine.fallback": "--fallback",
    "engine.stopWhen": "--stop-when",
    "engine.contextTokens": "--context",
    "engine.checkpoints": "--checkpoint",
    "engine.drafts": "--draft",
    "accuracy.evaluation": "--evaluation",
    "accuracy.metric": "--metric",
    "accuracy.maxLoss": "--tolerance",
    "accuracy.groupBy": "--group-by",
    "accuracy.task": "--task-metric",
    "accuracy.task.labels": "--labels",
    "accuracy.task.maxLoss": "--task-tolerance",
    "accuracy.task.output": "--task-output",
    "accuracy.task.queries": "--queries",
    "accuracy.task.threshold": "--threshold",
    "objective.latency": "--latency-ms",
    "objective.tokens.ttftMilliseconds": "--ttft-ms",
    "objective.tokens.tpotMilliseconds": "--tpot-ms",
    "placement.accelerator": "--accelerator",
}
# A path, and where a value is assigned to it the colon before that.
_FIELD = re.compile(r"spec\.(?P<path>[a-zA-Z]+(?:(?:\[\d+\])?\.[a-zA-Z]+)*)(?P<assigned>: (?=\w))?")


def in_options(outcome: Outcome) -> Outcome:
    """The same, with the names of options in its error and in the reasons of its candidates."""
    candidates = tuple(replace(one, reason=_worded(one.reason)) for one in outcome.candidates)
    return replace(outcome, candidates=candidates, error=_error(outcome.error) if outcome.error else None)


def _error(error: ErrorReport) -> ErrorReport:
    return replace(error, message=_worded(error.message), field=_worded(error.field), remedy=_worded(error.remedy))


def _worded(text: str) -> str:
    return _FIELD.sub(_option, text)


def _option(found: re.Match[str]) -> str:
    option = OPTIONS.get(re.sub(r"\[\d+\]", "", found["path"]).removesuffix(".uri"))
    return found[0] if option is None else option + (" " if found["assigned"] else "")
