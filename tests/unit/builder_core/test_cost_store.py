"""What trials took, from one build to the next: mixed, bounded, and trusted as far as a hint may be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from enginewright_builder.competition import cost_store
from enginewright_builder.competition.cost_store import MOST
from enginewright_builder.engine_store.signing import Keys

DEVICE = "NVIDIA H200"
KEYS = Keys(current=b"k" * 32)


def path(folder: Path) -> Path:
    (found,) = folder.glob("trials-*.json")
    return found


def test_builds_are_mixed_and_bounded(tmp_path: Path) -> None:
    cost_store.save(tmp_path, DEVICE, {"tensorrt fp16": 0.5, "torch fp16": 2.0}, {})
    first = cost_store.load(tmp_path, DEVICE)
    assert first.paces == {"tensorrt fp16": 0.5, "torch fp16": 2.0}
    cost_store.save(tmp_path, DEVICE, {"tensorrt fp16": 2.0, "tensorrt int8": 100.0}, first.paces)
    assert cost_store.load(tmp_path, DEVICE).paces == {"tensorrt fp16": 1.0, "torch fp16": 2.0, "tensorrt int8": MOST}
    assert path(tmp_path).name == "trials-nvidia-h200.json"
    assert cost_store.load(tmp_path, "NVIDIA H100").paces == {}


def test_with_keys_only_what_bears_their_mac_counts(tmp_path: Path) -> None:
    cost_store.save(tmp_path, DEVICE, {"torch fp16": 2.0}, {}, KEYS)
    assert cost_store.load(tmp_path, DEVICE, KEYS).paces == {"torch fp16": 2.0}
    held = json.loads(path(tmp_path).read_text())
    held["body"]["paces"]["torch fp16"] = 0.5
    path(tmp_path).write_text(json.dumps(held))
    found = cost_store.load(tmp_path, DEVICE, KEYS)
    assert (dict(found.paces), "no signature" in found.problem) == ({}, True)
    cost_store.save(tmp_path, DEVICE, {"torch fp16": 2.0}, {})
    assert "no signature" in cost_store.load(tmp_path, DEVICE, KEYS).problem


def body(**changes: Any) -> str:
    return json.dumps({"body": {"version": 1, "device": DEVICE, "paces": {"torch fp16": 2.0}, **changes}})


@pytest.mark.parametrize(("text", "told"), [
    ("", "does not count"), ("[]", "does not count"), ("{}", "does not count"), (body()[:-3], "does not count"),
    (body(device="NVIDIA T4"), "another version or device"), (body(version=2), "another version or device"),
    (body(paces={"torch fp16": "2"}), "no kind with a number"), (body(paces={"torch fp16": True}), "no kind with"),
    (body(paces={"torch\nfp16": 1.0}), "no kind with a number"), (body(paces={"torch fp16": -1.0}), "no factor"),
    (body(paces={"torch fp16": float("nan")}), "no factor"), (body(paces=[1.0]), "does not count"),
    (body(paces={f"torch p{index}": 1.0 for index in range(300)}), "too many kinds"),
    (body(paces={"torch fp16": 1.0}, filler="x" * 70_000), "too large"), ("[" * 50_000, "does not count"),
], ids=lambda value: str(value)[:30])
def test_what_is_damaged_or_absurd_counts_as_none(text: str, told: str, tmp_path: Path) -> None:
    cost_store.save(tmp_path, DEVICE, {"torch fp16": 2.0}, {})
    path(tmp_path).write_text(text)
    found = cost_store.load(tmp_path, DEVICE)
    assert not found.paces
    assert told in found.problem


def test_a_factor_that_is_far_off_is_believed_as_far_as_that_may_be(tmp_path: Path) -> None:
    cost_store.save(tmp_path, DEVICE, {"torch fp16": 2.0}, {})
    path(tmp_path).write_text(body(paces={"torch fp16": 1e300, "tensorrt fp16": 1e-300}))
    assert cost_store.load(tmp_path, DEVICE).paces == {"torch fp16": MOST, "tensorrt fp16": 1 / MOST}
