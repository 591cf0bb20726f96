"""What a server's container says of itself, as its shell writes it."""

from __future__ import annotations

import asyncio
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
    assert Witness(tmp_path, tmp_path).start_seconds() == pytest.approx(seconds)


def tell(folder: Path, number: int, *kilobytes: int) -> None:
    (folder / "next").write_text(f"asked {number}\n" + "".join(map(ROLLUP.format, kilobytes)))
    (folder / "next").replace(folder / "memory")


def asked_for(folder: Path) -> int:
    file = folder / ".asked"
    return int(file.read_text()) if file.exists() else 0


async def answer(server: Path, asked: Path, most: int) -> None:
    """As the shell does, until it was asked ``most`` times: by then its processes have that many times 1 MiB."""
    told = 0
    while told < most:
        number = asked_for(asked)
        if number != told:
            told = number
            tell(server, told, 1000 * told, 24 * told)
        await asyncio.sleep(0)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness, "ANSWER_SECONDS", 240.0)


@pytest.mark.asyncio
@pytest.mark.usefixtures("patient")
async def test_memory_of_all_its_processes_as_it_is_now(tmp_path: Path) -> None:
    asks = Witness(tmp_path, tmp_path)
    shell = asyncio.create_task(answer(tmp_path, tmp_path, 2))
    assert [await asks.memory_bytes() for _ in range(2)] == [1 << 20, 2 << 20]
    await shell


@pytest.mark.asyncio
@pytest.mark.usefixtures("patient")
async def test_who_asks_at_once_has_one_answer(tmp_path: Path) -> None:
    asks = Witness(tmp_path, tmp_path)
    both = asyncio.gather(asks.memory_bytes(), asks.memory_bytes())
    await asyncio.sleep(0)
    tell(tmp_path, 2, 1024)
    assert list(await both) == [1 << 20, 1 << 20]


@pytest.mark.asyncio
@pytest.mark.parametrize("said", ["", "asked 0\n", "asked many\n", "asked 1"], ids=["none", "old", "a word", "cut off"])
async def test_words_that_answer_nothing_do_not_count(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                      ) -> None:
    monkeypatch.setattr(witness, "ANSWER_SECONDS", 0.3)
    asks = Witness(tmp_path, tmp_path)
    assert await asks.memory_bytes() == 0
    (tmp_path / "memory").write_text(said + ROLLUP.format(1000))
    assert await asks.memory_bytes() == 0
