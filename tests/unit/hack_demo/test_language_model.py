"""What the demo of language models asks, and what it sums up."""

from __future__ import annotations

import json
from pathlib import Path

from demo.language_model import TOPICS, prompts
from demo.llm import Summary
from enginewright_builder.generate.prompts import read_prompts


def test_prompts_are_as_builds_read_them(tmp_path: Path) -> None:
    asks = read_prompts(prompts(tmp_path / "prompts") / "prompts.jsonl")
    assert len(asks) == len(set(TOPICS)) == len(TOPICS)
    assert all(one.chat for one in asks)


def test_loads_are_added(tmp_path: Path) -> None:
    summary = Summary()
    summary.add_load("surge", {"requests": 3, "failed": 1, "cut_streams": 1, "messages": {"ReadError": "ReadError"}})
    summary.add_load("trickle", {"requests": 2, "failed": 0, "cut_streams": 0, "messages": {}})
    summary.write(tmp_path / "summary.json")
    found = json.loads((tmp_path / "summary.json").read_text())
    assert (found["requests"], found["failed_requests"], found["cut_streams"]) == (5, 1, 1)
    assert found["errors"] == {"surge: ReadError": "ReadError"}
