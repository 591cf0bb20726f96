"""What a server's container says of itself, as its shell writes it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from enginewright_builder.triton import witness
from enginewright_builder.triton.witness import Witness

ROLLUP = "55d-7ff ---p 00000000 00:00 0 [rollup]\nRss:     2000 kB\nPss:   {} kB\nPss_Dirty:  7 kB\n"


@pytest.mark.parametrize(("started", "ready", "seconds"), [
    ("1700000000.5", "1700000002.0", 1.5), ("1700000000.5\n", "1700000000.5\n", 0.0),
    ("1700000002", "1700000001", 0.0), ("1700000000", "1800000000", 0.0), ("", "1700000001", 0.0),
    ("nan", "1700000001", 0.0), ("a word", "1700000001", 0.0), (None, None, 0.0),
], ids=["told", "at once", "backwards", "years", "empty", "no number", "a word", "nothing"])
def test_how_long_it_took_to_start(started: str | None, ready: str | None, seconds: float, tmp_path: Path) -> None:
    for name, text in (("started", started), ("ready", ready)):
        if text is not None:
            (tmp_path / name).write_text(text)
    assert Witness(tmp_path).start_seconds() == pytest.approx(seconds)


@pytest.mark.asyncio
async def test_memory_of_all_its_processes_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "memory"
    file.write_text(ROLLUP.format(1000) + ROLLUP.format(24))
    os.utime(file, (time.time() + 60, time.time() + 60))
    assert await Witness(tmp_path).memory_bytes() == 1 << 20


@pytest.mark.asyncio
async def test_old_words_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness, "FRESH_SECONDS", 0.3)
    assert await Witness(tmp_path).memory_bytes() == 0
    (tmp_path / "memory").write_text(ROLLUP.format(1000))
    os.utime(tmp_path / "memory", (0, 0))
    assert await Witness(tmp_path).memory_bytes() == 0
