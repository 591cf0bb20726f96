"""What the demo of language models breaks on purpose, asks, and sums up."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from demo.language_model import FACTOR, TOPICS, WEIGHTS, broken, prompts
from demo.llm import Summary
from enginewright_builder.generate.prompts import read_prompts


def test_of_a_broken_copy_one_tensor_differs(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    save_file({WEIGHTS: torch.ones(2, 2), "other": torch.ones(3)}, model / "model.safetensors")
    copy = broken(model, tmp_path / "broken")
    tensors = load_file(copy / "model.safetensors")
    assert torch.equal(tensors[WEIGHTS], torch.full((2, 2), FACTOR))
    assert torch.equal(tensors["other"], torch.ones(3))
    assert (copy / "config.json").read_text() == "{}"
    assert torch.equal(load_file(model / "model.safetensors")[WEIGHTS], torch.ones(2, 2))


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
