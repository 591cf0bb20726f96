"""The count of models: its table, what it makes of a build's end, and its page."""

from __future__ import annotations

import json
from typing import Any

import pytest

from model_count.__main__ import outcome
from model_count.page import page

_ERROR = {"family": "user", "reason": "ExportFailed", "message": "m", "remedy": "r", "field": "", "value": ""}
_SERVED = {"event": "outcome", "ok": True, "serving": {"max_batch_size": 8},
           "engine": {"backend": "onnxruntime", "precision": "fp32"}}


@pytest.mark.parametrize(("lines", "expected"), [
    ([_SERVED], {"outcome": "served", "batch": 8, "engine": "onnxruntime fp32"}),
    ([{"event": "outcome", "ok": False, "error": _ERROR}],
     {"outcome": "refused", "reason": "ExportFailed", "message": "m", "remedy": "r"}),
    ([{"event": "outcome", "ok": False, "error": {**_ERROR, "family": "bug", "reason": "InternalError"}}],
     {"outcome": "InternalError", "reason": "InternalError", "message": "m", "remedy": "r"}),
    ([{"event": "progress"}], {"outcome": "no outcome", "message": "exit status 1: killed"}),
])
def test_a_build_that_ends_is_served_refused_or_named_by_its_reason(
        lines: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    printed = "a line of another program\n" + "\n".join(json.dumps(line) for line in lines)
    assert outcome(1, printed, "killed") == expected


def test_page_counts_by_source_and_task_and_lists_what_is_not_served() -> None:
    rows = [{"name": "One", "task": "depth", "source": "ONNX", "outcome": "served"},
            {"name": "Two", "task": "depth", "source": "Keras", "outcome": "refused", "reason": "ExportFailed",
             "message": "a | b <c>"}]
    text = page({"hardware": {"cpu": "CPU", "cores": 2}, "versions": {"torch": "1"}, "before": rows,
                 "after": [{**rows[1], "outcome": "served"}]})
    assert "| ONNX | 1 of 1 served | 1 of 1 served |" in text
    assert "| depth | 1 of 2 served, 1 refused | 2 of 2 served |" in text
    assert "| all | 1 of 2 served, 1 refused | 2 of 2 served |" in text
    assert text.count("| Two | refused: `ExportFailed` | a \\| b &lt;c> |") == 1


@pytest.mark.torch
def test_table_has_enough_models_tasks_and_sources() -> None:
    from model_count.table import MODELS

    assert len({one.name for one in MODELS}) == len(MODELS) >= 60
    assert len({one.task for one in MODELS}) >= 12
    assert len({one.source for one in MODELS}) >= 5
