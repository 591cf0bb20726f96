"""Answers so large that they are compared in blocks, by several threads."""

from __future__ import annotations

import numpy as np
import pytest

from enginewright_builder.accuracy import scores


@pytest.mark.parametrize("cpus", [1, 2, 64])
@pytest.mark.parametrize("entries", [0, 1, 70_000, 1_000_003])
def test_blocks_add_up_to_the_whole(cpus: int, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "available_cpus", lambda: cpus)
    rng = np.random.default_rng(entries)
    one, other = (rng.standard_normal((3, entries)).astype(np.float32) for _ in range(2))
    wide, also_wide = one.astype(np.float64), other.astype(np.float64)
    np.testing.assert_allclose(scores.products(one, other), (wide * also_wide).sum(axis=1), rtol=1e-9, atol=1e-9)
    expected = 1 - np.linalg.norm(also_wide - wide, axis=1) / np.maximum(np.linalg.norm(wide, axis=1), 1e-300)
    found = scores.relative_error(one, other, scores.Usual())
    np.testing.assert_allclose(found, np.clip(expected, 0, 1), rtol=1e-9, atol=1e-9)


def test_answers_of_one_block_ask_for_no_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sentences that come one by one there are thousands."""
    monkeypatch.setattr(scores, "available_cpus", lambda: pytest.fail("the cgroup's files are read"))
    assert scores.norms(np.array([[3.0, 4.0]])) == [5.0]


def test_blocks_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "available_cpus", lambda: 4)
    array = np.arange(1_000_000, dtype=np.float64)[None, :]
    firsts = scores.by_blocks(lambda one, _: float(one[0, 0]), array, array)
    assert len(firsts) > 8
    assert firsts == sorted(firsts)
