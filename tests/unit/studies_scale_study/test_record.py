"""What the scale study has found is written as it is found, also where it cannot go on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from scale_study import __main__ as program
from scale_study.page import page
from scale_study.record import Record, joined

MADE = {"deployments_per_s": 9.3, "ready_s": 35.5, "apiserver_cpu_s": 35.6, "etcd_cpu_s": 8.6, "operator_cpu_s": 14.1,
        "requests": {"create": 3000}}


def test_each_part_is_written_at_once(tmp_path: Path) -> None:
    output = tmp_path / "summary.json"
    record = Record(output)
    with record.size(300, 1) as tell:
        tell(MADE)
        (size,) = json.loads(output.read_text())["sizes"]
        assert size.items() >= {"n": 300, "namespaces": 1, **MADE}.items()
    with record.beside() as tell:
        tell({**MADE, "manager_cpu_s": 3.0, "manager_rss_mb": 97})
    assert json.loads(output.read_text())["sizes"][0]["kserve"]["manager_rss_mb"] == 97
    assert "| 300 | 1 | Enginewright | 9.3 | 35.5 | 119 | 29 | 47 | 10.0 | – |" in output.with_suffix(".md").read_text()


def test_a_size_that_fails_says_why_and_ends_no_other(tmp_path: Path) -> None:
    output = tmp_path / "summary.json"
    record = Record(output)
    with record.size(300, 1) as tell:
        tell(MADE)
        raise ExceptionGroup("tasks", [RuntimeError("after 9 s still waiting: every object is Ready")])
    with record.beside():
        raise RuntimeError("no manager")
    with record.size(1000, 100) as tell:
        tell(MADE)
    text = output.with_suffix(".md").read_text()
    assert "- 300 objects, namespaces: 1, Enginewright: after 9 s still waiting: every object is Ready\n" in text
    assert "- 300 objects, namespaces: 1, KServe: no manager\n" in text
    assert "| 300 | 1 | Enginewright |" in text
    assert "| 1000 | 100 | Enginewright |" in text


def test_what_runs_when_the_time_is_over_is_stopped() -> None:
    async def run(*_: Any) -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="the time of the study was over"):
        program._in_time(0.0, run)


def test_summaries_of_studies_beside_each_other_become_one(tmp_path: Path) -> None:
    parts = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, sizes in zip(parts, ([(3000, 1), (300, 1)], [(300, 100), (1000, 1)]), strict=True):
        record = Record(path)
        for n, spaces in sizes:
            with record.size(n, spaces) as tell:
                tell(MADE)
    found = joined([json.loads(path.read_text()) for path in parts])
    assert [(size["n"], size["namespaces"]) for size in found["sizes"]] == [(300, 1), (1000, 1), (3000, 1), (300, 100)]


def test_the_page_says_when_a_study_was_kept_to_some_cores(tmp_path: Path) -> None:
    output = tmp_path / "summary.json"
    with Record(output).size(300, 1) as tell:
        tell(MADE)
    found = json.loads(output.read_text())
    hardware = found["hardware"]
    pinned = page({**found, "hardware": {**hardware, "cores": 4, "of_cores": 16}})
    assert f"{hardware['cpu']}, 4 of 16 cores for each size, " in pinned
    assert f"{hardware['cpu']}, 4 cores, " in page({**found, "hardware": {**hardware, "cores": 4, "of_cores": 4}})
