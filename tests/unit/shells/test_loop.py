"""What the end of a pass means for the objects that wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from enginewright.clients.errors import ConflictError, RefusedError, TransientError
from enginewright.observe.keys import Key
from enginewright.reconcile.loop import Loop
from enginewright.reconcile.metrics import Metrics
from enginewright.reconcile.passes import Reconciler
from enginewright.reconcile.queue import Lane, WorkQueue

KEY, OTHER = Key("models", "minilm"), Key("models", "other")


class Ends:
    """A reconciler whose passes end as the test says."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hurried: asyncio.Queue[tuple[Key, bool]] = asyncio.Queue()

    async def reconcile(self, key: Key, *, hurried: bool = False) -> float | None:
        if self.error is not None:
            raise self.error
        self.hurried.put_nowait((key, hurried))
        return None


@pytest.fixture
async def queue() -> AsyncIterator[WorkQueue[Key]]:
    made: WorkQueue[Key] = WorkQueue()
    yield made
    made.close()


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def loop(queue: WorkQueue[Key], ends: Ends) -> Loop:
    return Loop(queue, cast("Reconciler", ends), Metrics(), workers=1)


@pytest.mark.parametrize("error", [TransientError("no answer"), ConflictError("changed"), TimeoutError()])
async def test_an_object_waits_from_a_failed_pass_until_one_that_ends_well(
        loop: Loop, ends: Ends, error: Exception) -> None:
    ends.error = error
    for _ in range(2):
        await loop.step(KEY)
    await loop.step(OTHER)
    assert loop.backoff == 2
    ends.error = None
    await loop.step(KEY)
    await loop.step(OTHER)
    assert loop.backoff == 0


async def test_one_that_is_in_the_queue_again_does_not_count_twice(
        loop: Loop, ends: Ends, queue: WorkQueue[Key]) -> None:
    ends.error = TransientError("no answer")
    await loop.step(KEY)
    queue.add(KEY)
    assert (len(queue), loop.backoff) == (1, 0)
    assert await queue.get() == KEY
    queue.add(KEY)
    assert (len(queue), loop.backoff) == (0, 1), "in work, it has failed before"


@pytest.mark.parametrize("error", [RefusedError("no such field"), ValueError("a defect")])
async def test_what_time_does_not_heal_is_no_delay_of_the_operator(loop: Loop, ends: Ends, error: Exception) -> None:
    for ends.error in (TransientError("no answer"), error):
        await loop.step(KEY)
    assert loop.backoff == 0


async def test_a_pass_is_hurried_where_the_queue_of_its_object_rises(
        queue: WorkQueue[Key], loop: Loop, ends: Ends) -> None:
    queue.add(KEY, Lane.SCALING)
    queue.add(OTHER)
    working = asyncio.create_task(loop.run())
    try:
        assert {await ends.hurried.get(), await ends.hurried.get()} == {(KEY, True), (OTHER, False)}
    finally:
        working.cancel()
        await asyncio.wait({working})
