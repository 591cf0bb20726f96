"""Which objects a resync lets run a pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from enginewright.clients.kube import KubeClient
from enginewright.observe.keys import Key
from enginewright.reconcile import resync
from enginewright.reconcile.known import Known, Needs
from enginewright.reconcile.metrics import Metrics
from enginewright.reconcile.queue import WorkQueue
from enginewright.reconcile.resync import Resync

PERIOD = 10.0


class Kube:
    """Lists the names that it is given."""

    def __init__(self, names: str) -> None:
        self.names = names

    async def gather(self, _resource: object, _namespace: object, keep: Callable[[Any], Any], *,
                     metadata: bool = False) -> list[Any]:
        return [keep({"metadata": {"namespace": "n", "name": name}}) for name in self.names]


class Rounds:
    """Resyncs of ``a`` to ``f`` one after another, two of which a round takes; all are known but ``unknown``."""

    def __init__(self, unknown: str = "") -> None:
        self.kube, self.known, self.queue = Kube("abcdef"), Known(), WorkQueue[Key](lambda: 0.0)
        for name in set("abcdef") - set(unknown):
            self.known.remember(Key("n", name), Needs())
        self.resync = Resync(cast(KubeClient, self.kube), self.queue, self.known, Metrics(), namespaces=(),
                             period=PERIOD, chance=lambda: 0.0)

    async def names(self) -> str:
        """Of the objects that one more resync lets run a pass."""
        await self.resync.once()
        keys = [await self.queue.get() for _ in range(len(self.queue))]
        for key in keys:
            self.queue.done(key)
        return "".join(key.name for key in keys)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "PASSES", 2 / PERIOD)


def test_the_first_one_takes_all_and_later_ones_a_part_each_in_turn() -> None:
    async def look() -> list[str]:
        rounds = Rounds()
        return [await rounds.names() for _ in range(5)]

    assert asyncio.run(look()) == ["abcdef", "ab", "cd", "ef", "ab"]


def test_a_round_goes_on_after_an_object_that_is_gone() -> None:
    async def look() -> str:
        rounds = Rounds()
        for _ in range(2):
            await rounds.names()
        rounds.kube.names = "acdef"
        await rounds.names()
        return await rounds.names()

    assert asyncio.run(look()) == "bef", "and what is known and gone runs a pass that forgets it"


def test_each_takes_what_no_pass_has_seen() -> None:
    async def look() -> list[str]:
        rounds = Rounds(unknown="e")
        await rounds.names()
        return [await rounds.names() for _ in range(2)]

    assert asyncio.run(look()) == ["abe", "cde"]


def test_few_objects_all_run_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "PASSES", 1.0)

    async def look() -> list[str]:
        rounds = Rounds()
        return [await rounds.names() for _ in range(2)]

    assert asyncio.run(look()) == ["abcdef", "abcdef"]
