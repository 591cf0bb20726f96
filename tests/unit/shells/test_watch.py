"""How the watching thread ends. kopf's part is played by stand-ins here; tests/integration/test_operator_faults.py has
the real one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import kopf
import pytest

from enginewright.handlers import watch
from enginewright.handlers.translate import Translator
from enginewright.handlers.watch import NoMemories, Watcher
from enginewright.observe.kinds import WATCHED
from enginewright.reconcile.health import Watching
from enginewright.reconcile.known import Known

WATCHES = [f"watcher for {resource.plural}@None" for resource in WATCHED]


class Bench:
    """A watcher with a stand-in for kopf, that looks often and gives up soon, and what it told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[BaseException | None] = []
        self.once = threading.Event()
        self.looks: asyncio.Queue[Watching] = asyncio.Queue()
        self.watcher = Watcher(Translator(Known()), wake=lambda *_: None, ended=self._ended)
        self._patch = monkeypatch
        monkeypatch.setattr(watch, "_LOOK_SECONDS", 0.005)
        monkeypatch.setattr(watch, "STOP_SECONDS", 0.05)
        real = self.watcher.watching
        monkeypatch.setattr(self.watcher, "watching", lambda: self._looked(real()))

    def start(self, kopf_does: Callable[[threading.Event], Awaitable[None]]) -> None:
        async def operator(*, stop_flag: threading.Event, **_: object) -> None:
            await kopf_does(stop_flag)

        self._patch.setattr(kopf, "operator", operator)
        self.watcher.start()

    async def looked(self, times: int) -> None:
        """In the watching thread: until the watcher has looked so many times more."""
        for _ in range(times):
            await self.looks.get()

    def _looked(self, seen: Watching) -> Watching:
        self.looks.put_nowait(seen)
        return seen

    def _ended(self, error: BaseException | None) -> None:
        self.told.append(error)
        self.once.set()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(monkeypatch)
    yield made
    monkeypatch.setattr(watch, "STOP_SECONDS", 30.0)
    made.watcher.stop()


def started(names: list[str]) -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(asyncio.Event().wait(), name=name) for name in names]


def test_a_kopf_that_loses_a_watch_and_does_not_end_is_told_as_dead(bench: Bench) -> None:
    async def hangs(stop_flag: threading.Event) -> None:
        tasks = started(WATCHES)
        await bench.looked(2)
        tasks[0].cancel()
        await asyncio.to_thread(stop_flag.wait)

    bench.start(hangs)
    assert bench.once.wait(60)
    assert "no watch on optimisedmodels@*" in str(bench.told[0])
    bench.watcher.stop()
    assert len(bench.told) == 1


def test_a_kopf_that_dies_is_told_with_what_it_died_of(bench: Bench) -> None:
    async def dies(_: threading.Event) -> None:
        _kept = started(WATCHES)
        await bench.looked(2)
        raise ValueError("the stream broke")

    bench.start(dies)
    assert bench.once.wait(60)
    assert str(bench.told[0]) == "the stream broke"


def test_watches_that_never_were_all_there_are_waited_for(bench: Bench) -> None:
    """An apiserver that is away at the start: kopf goes on trying."""
    async def tries(_: threading.Event) -> None:
        started(WATCHES[1:])
        await bench.looked(100)

    bench.start(tries)
    assert bench.once.wait(60)
    assert bench.told == [None]


async def test_kopf_remembers_no_object() -> None:
    memories = NoMemories()
    for uid in ("a", "b"):
        body: Any = {"metadata": {"name": "m", "uid": uid}}
        first = await memories.recall(body, noticed_by_listing=True)
        assert first.noticed_by_listing
        assert await memories.recall(body) is not first
        await memories.forget(body)
    assert list(memories.iter_all_memories()) == []
