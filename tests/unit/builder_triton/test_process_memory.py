"""Memory and processor time, as the kernel tells them of processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from enginewright_builder.triton import process
from enginewright_builder.triton.process import Memory, cpu_seconds_in, memory_in, spike_in

ROLLUP = "55d-7ff ---p 00000000 00:00 0  [rollup]\nRss:  900 kB\nPss:  {} kB\nPss_Dirty: 7 kB\nPss_Anon:  {} kB\n" \
         "Pss_File:  20 kB\nPss_Shmem:  {} kB\nAnonymous: 900 kB\n"
STATUS = "Name:\ttritonserver\nVmPeak:\t  9999 kB\nVmHWM:\t  {} kB\nVmRSS:\t  {} kB\nRssAnon:\t  60 kB\n" \
         "RssShmem:\t  4 kB\n"
STAT = "{} ({}) S 1 2 3 4 -1 6 7 8 9 10 {} {} 13 14 20 0 1 0 100 1000 10\n"


def test_of_all_processes_with_what_cannot_be_taken_back() -> None:
    assert memory_in(ROLLUP.format(100, 70, 10) + ROLLUP.format(24, 4, 0)) == Memory(
        resident=124 << 10, held=84 << 10)


def test_what_the_server_says_beside_it_does_not_count() -> None:
    """A witness writes all three files one after another."""
    text = ROLLUP.format(100, 70, 10) + STATUS.format(300, 100) + STAT.format(7, "a b) (c", 250, 50)
    assert memory_in(text) == Memory(resident=100 << 10, held=80 << 10)
    assert (spike_in(text), cpu_seconds_in(text)) == (200 << 10, 300 / os.sysconf("SC_CLK_TCK"))


@pytest.mark.parametrize("text", ["", "Pss: many kB\n", "7 (half\n"])
def test_what_is_not_said_is_nothing(text: str) -> None:
    assert (memory_in(text), spike_in(text), cpu_seconds_in(text)) == (Memory(), 0, 0.0)


def test_of_this_process() -> None:
    before, block = process.memory(os.getpid()), bytearray(os.urandom(1 << 20)) * 64
    grown = process.memory(os.getpid())
    assert grown.held - before.held > 48 << 20
    assert grown.resident >= grown.held
    assert process.resident_bytes(os.getpid()) == pytest.approx(grown.resident, rel=0.2)
    del block
    assert process.spike_bytes(os.getpid()) > 0
    began, used = time.process_time(), process.cpu_seconds(os.getpid())
    while time.process_time() - began < 0.2:
        pass
    assert process.cpu_seconds(os.getpid()) - used > 0.05


def test_where_rollups_may_not_be_read_status_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/status").write_text(STATUS.format(300, 100))
    (tmp_path / "7/stat").write_text(STAT.format(7, "tritonserver", 100, 0))
    monkeypatch.setattr(process, "PROC", tmp_path)
    assert process.memory(7) == Memory(resident=100 << 10, held=64 << 10)
    assert (process.spike_bytes(7), process.cpu_seconds(7)) == (200 << 10, 100 / os.sysconf("SC_CLK_TCK"))
