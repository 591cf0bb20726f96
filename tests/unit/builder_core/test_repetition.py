"""What a response cache of each size would have answered, against a plain simulation of one."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.repetition import MEBIBYTE, main, repetition


def hits(keys: list[int], room: int) -> int:
    kept: OrderedDict[int, None] = OrderedDict()
    found = 0
    for key in keys:
        found += key in kept
        kept[key] = None
        kept.move_to_end(key)
        if len(kept) > room:
            kept.popitem(last=False)
    return found


@given(keys=st.lists(st.integers(0, 40), min_size=1, max_size=300), room=st.integers(1, 12))
def test_it_is_what_a_cache_would_have_done(keys: list[int], room: int) -> None:
    found = repetition([bytes([key]) for key in keys], MEBIBYTE // room)
    assert found.distinct == len(set(keys))
    for size, share in found.shares.items():
        assert share == pytest.approx(hits(keys, size * MEBIBYTE // (MEBIBYTE // room)) / len(keys))
    assert list(found.shares.values()) == sorted(found.shares.values()), "a larger one answers no less"


def test_of_a_capture_it_proposes_a_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 4000 requests half are for ten popular inputs, and the others differ."""
    dice = np.random.default_rng(3)
    rows = np.where(dice.random(4000) < 0.5, dice.integers(0, 10, 4000), np.arange(100, 4100))
    np.savez(tmp_path / "samples.npz", a=rows[:, None].astype(np.int64), b=np.ones((4000, 3), np.float32))
    assert main([str(tmp_path / "samples.npz"), "--answer-bytes", "4000"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("4,000 requests, ")
    assert said.endswith("proposed: sizeMebibytes: 1\n")
    assert "     1 MiB   4" in said, "nearly half"


def test_lines_are_requests_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "samples.jsonl").write_text('{"ids": [1]}\n{"ids": [1, 2]}\n{"ids": [3]}\n')
    assert main([str(tmp_path / "samples.jsonl"), "--answer-bytes", "16"]) == 0
    assert capsys.readouterr().out.endswith("nothing repeats: no cache is proposed\n")


def test_what_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.npz"), "--answer-bytes", "16"]) == 2
    assert "none.npz" in capsys.readouterr().err
    np.savez(tmp_path / "odd.npz", a=np.ones(2), b=np.ones(3))
    assert main([str(tmp_path / "odd.npz"), "--answer-bytes", "16"]) == 2
    assert "a sample a row" in capsys.readouterr().err
