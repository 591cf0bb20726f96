"""Answers that are too large for memory lie on disk, and are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from enginewright_builder.accuracy.gate import compare
from enginewright_builder.accuracy.reference_answers import remembered

BATCHES = [{"y": np.random.default_rng(index).normal(size=(100, 8)), "labels": np.arange(100)[:, None] + index}
           for index in range(4)]
BATCH_BYTES = 100 * 8 * 8 + 100 * 8


def test_small_answers_stay_in_memory(tmp_path: Path) -> None:
    kept = remembered(iter(BATCHES), tmp_path / "answers")
    assert kept == BATCHES
    assert not (tmp_path / "answers").exists()


def test_large_ones_lie_on_disk_and_are_compared_all_the_same(tmp_path: Path) -> None:
    kept = remembered(iter(BATCHES), tmp_path / "answers", memory_bytes=BATCH_BYTES)
    assert [type(batch["y"]) for batch in kept] == [np.ndarray, np.memmap, np.memmap, np.memmap]
    assert len(list((tmp_path / "answers").iterdir())) == 6
    assert compare("cosine", kept, BATCHES) == compare("cosine", BATCHES, BATCHES)
