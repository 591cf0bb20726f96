"""What LoadGen says of a run, from the detail log that it writes. Nothing is judged here but failed requests, of which
LoadGen knows nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from enginewright_builder.loadgen.scenarios import MULTI_STREAM, OFFLINE, SERVER, SINGLE_STREAM, Target

DETAIL, SUMMARY = "mlperf_log_detail.txt", "mlperf_log_summary.txt"
VALID = "VALID"
# What a scenario is known by, and how much of it one of ours is: LoadGen counts nanoseconds. Of the two streams it is
# the estimate that early stopping makes of the percentile, as in submissions.
METRICS = {
    OFFLINE: ("result_samples_per_second", 1.0, "samples/s"),
    SERVER: ("result_completed_samples_per_sec", 1.0, "samples/s"),
    SINGLE_STREAM: ("early_stopping_latency_ss", 1e-6, "ms at the 90th percentile"),
    MULTI_STREAM: ("early_stopping_latency_ms", 1e-6, "ms at the 99th percentile"),
}
_CHECKS = {
    "result_perf_constraints_met": "the latency was not kept",
    "result_min_duration_met": "it was too short",
    "result_min_queries_met": "there were too few queries",
    "early_stopping_met": "there were too few queries for the percentile to be known",
}
_LINE = ":::MLLOG "
_PERCENTILE = re.compile(r"result_([\d.]+)_percentile_(per_query_)?latency_ns")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of LoadGen. ``loadgen`` is its verdict, ``VALID`` or ``INVALID``, and ``reasons`` are its own for the
    latter. ``valid``: it says so, and no request failed. ``target`` is as :class:`Target`'s value. ``value`` is the
    scenario's metric; 0 where LoadGen gives none. ``latencies_ms`` has percentiles of a query, by ``50.00`` and the
    like. ``errors`` counts failed requests by kind. ``folder`` has LoadGen's logs and its ``user.conf``.
    """

    folder: str
    target: float
    seconds: float
    loadgen: str
    valid: bool
    value: float
    queries: int
    samples: int
    too_short: bool = False
    reasons: tuple[str, ...] = ()
    latencies_ms: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    version: str = ""


def read_run(folder: Path, target: Target, errors: Mapping[str, int] | None = None, name: str = "") -> Run:
    """Of the logs in ``folder``. Raises ``ValueError`` where LoadGen did not finish, ``OSError`` without logs."""
    detail = details((folder / DETAIL).read_text(encoding="utf-8"))
    if "result_validity" not in detail:
        raise ValueError(f"LoadGen gave no verdict; {folder / DETAIL} says how far it came")
    metric, unit, _ = METRICS[target.scenario]
    failed = dict(errors or {})
    queries = int(detail["result_query_count"])
    return Run(folder=name or folder.name, target=target.value, seconds=target.seconds,
               loadgen=detail["result_validity"], valid=detail["result_validity"] == VALID and not failed,
               value=float(detail.get(metric, 0)) * unit, queries=queries,
               samples=queries * int(detail["generated_samples_per_query"]),
               too_short=not detail.get("result_min_duration_met", True), reasons=_reasons(detail, failed),
               latencies_ms=_percentiles(detail), errors=failed, version=str(detail.get("loadgen_version", "")))


def details(text: str) -> dict[str, Any]:
    """By key. Of a key that the log has twice, the last value counts."""
    found = {}
    for line in text.splitlines():
        if line.startswith(_LINE):
            entry = json.loads(line.removeprefix(_LINE))
            found[entry["key"]] = entry["value"]
    return found


def _reasons(detail: Mapping[str, Any], errors: Mapping[str, int]) -> tuple[str, ...]:
    found = [text for key, text in _CHECKS.items() if not detail.get(key, True)]
    advice = [_one_line(detail.get("result_invalid_reason", ""))]
    if not detail.get("early_stopping_met", True):
        advice.append(_one_line(detail.get("early_stopping_result", "")))
    if int(detail.get("num_errors", 0)):
        found.append(f"LoadGen met {detail['num_errors']} errors")
    failed = [f"{count} requests failed: {kind}" for kind, count in sorted(errors.items())]
    return tuple(filter(None, [*found, *advice, *failed]))


def _percentiles(detail: Mapping[str, Any]) -> dict[str, float]:
    """Of a query, where it is of several samples."""
    matches = [(match, value) for key, value in detail.items() if (match := _PERCENTILE.fullmatch(key))]
    of_queries = [(match, value) for match, value in matches if match[2]]
    return {match[1]: value / 1e6 for match, value in of_queries or matches}


def _one_line(text: str) -> str:
    return " ".join(text.replace(" * ", " ").split())
