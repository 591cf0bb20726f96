"""The work queue: once in it, once in work, nothing lost. Time is the event loop's own, turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from enginewright.core.backoff import Backoff
from enginewright.reconcile.queue import Lane, WorkQueue

BACKOFF = Backoff(first=1.0, most=60.0)


@pytest.fixture
async def queue() -> AsyncIterator[WorkQueue[str]]:
    made: WorkQueue[str] = WorkQueue(chance=lambda: 1.0)
    yield made
    made.close()


def added_after(queue: WorkQueue[str], delay: float) -> tuple[float, float]:
    """Adds ``a`` after ``delay`` seconds; returns the earliest and the latest moment at which it may be due."""
    clock = asyncio.get_running_loop().time
    earliest = clock() + delay
    queue.add_after("a", delay)
    return earliest, clock() + delay


async def test_a_key_is_queued_once_however_often_it_is_added(queue: WorkQueue[str]) -> None:
    for _ in range(3):
        queue.add("a")
    assert len(queue) == 1


async def test_a_key_added_while_in_work_runs_once_more_and_never_at_the_same_time(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_keys_come_in_the_order_they_were_added(queue: WorkQueue[str]) -> None:
    for key in "cab":
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == ["c", "a", "b"]


async def test_lanes_take_turns_and_queues_that_rise_have_workers_of_their_own(queue: WorkQueue[str]) -> None:
    """Neither a thousand of them nor a thousand rollouts stop the other."""
    for number in range(2):
        queue.add(f"rises-{number}", Lane.SCALING)
        queue.add(f"asked-{number}", Lane.ASKED)
        queue.add(f"news-{number}")
        queue.add(f"resync-{number}", Lane.ROUTINE)
    assert [await queue.get() for _ in range(6)] == ["asked-0", "news-0", "resync-0", "asked-1", "news-1", "resync-1"]
    assert queue.rising == 2
    assert [await queue.get_rising() for _ in range(2)] == ["rises-0", "rises-1"]
    assert (queue.rising, len(queue)) == (2, 0), "they are in work"
    queue.done("rises-0")
    queue.done("rises-1")
    assert queue.rising == 0


async def test_a_key_keeps_its_place_in_each_of_its_lanes_and_leaves_all_at_once(queue: WorkQueue[str]) -> None:
    queue.add("a", Lane.SCALING)
    queue.add("b", Lane.NEWS)
    queue.add("a", Lane.NEWS)
    queue.add("a", Lane.ROUTINE)
    queue.add("c", Lane.SCALING)
    assert len(queue) == 3
    assert [await queue.get_rising() for _ in range(2)] == ["a", "c"]
    assert await queue.get() == "b"
    assert len(queue) == 0


async def test_a_key_that_is_in_work_comes_back_into_its_lane(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a", Lane.ROUTINE)
    queue.add("a", Lane.ASKED)
    queue.add("b")
    queue.done("a")
    assert [await queue.get() for _ in range(2)] == ["a", "b"]


async def test_a_queue_that_rises_while_its_pass_runs_does_not_stand_before_those_of_others(
    queue: WorkQueue[str]
) -> None:
    """The pass answers it."""
    queue.add("a", Lane.SCALING)
    await queue.get_rising()
    queue.add("a", Lane.SCALING)
    queue.done("a")
    assert (queue.waiting(Lane.SCALING), len(queue)) == (0, 1)


async def test_a_queue_that_rises_while_a_pass_runs_for_another_reason_is_not_behind_what_is_new(
    queue: WorkQueue[str]
) -> None:
    """That pass may have looked before, and what is new may be a thousand rollouts."""
    queue.add("a")
    await queue.get()
    queue.add("a", Lane.SCALING)
    queue.done("a")
    assert await queue.get_rising() == "a"


async def test_a_worker_of_queues_that_rise_wakes_up_on_the_next_of_these(queue: WorkQueue[str]) -> None:
    waiting = asyncio.create_task(queue.get_rising())
    await asyncio.sleep(0)
    queue.add("news")
    queue.add("a", Lane.SCALING)
    assert await waiting == "a"


async def test_a_waiting_worker_wakes_up_on_the_next_key(queue: WorkQueue[str]) -> None:
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await waiting == "a"


async def test_of_two_delays_the_earlier_holds(queue: WorkQueue[str]) -> None:
    earliest, latest = added_after(queue, 50)
    queue.add_after("a", 100)
    assert earliest <= queue._timers["a"][0].when() <= latest
    earliest, latest = added_after(queue, 10)
    assert earliest <= queue._timers["a"][0].when() <= latest
    assert queue.delayed == 1


async def test_a_delay_that_has_passed_puts_the_key_into_the_queue(queue: WorkQueue[str]) -> None:
    queue.add_after("a", 0.001)
    assert await asyncio.wait_for(queue.get(), 10) == "a"
    assert queue.delayed == 0


async def test_a_pass_drops_the_delay_because_it_will_set_its_own(queue: WorkQueue[str]) -> None:
    queue.add_after("a", 50)
    queue.add("a")
    await queue.get()
    assert queue.delayed == 0


async def test_failures_in_a_row_wait_longer_and_a_success_starts_over(queue: WorkQueue[str]) -> None:
    assert [queue.retry("a", BACKOFF) for _ in range(4)] == [1, 2, 4, 8]
    queue.succeeded("a")
    assert queue.retry("a", BACKOFF) == 1


async def test_what_the_server_asks_for_is_the_least(queue: WorkQueue[str]) -> None:
    assert queue.retry("a", BACKOFF, at_least=30) == 30


async def test_a_forgotten_key_leaves_nothing(queue: WorkQueue[str]) -> None:
    queue.retry("a", BACKOFF)
    queue.forget("a")
    assert queue.delayed == 0
    assert queue.retry("a", BACKOFF) == 1


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_backoff_stays_between_half_and_whole_and_under_the_most(failures: int, chance: float) -> None:
    delay = BACKOFF.jittered(failures, lambda: chance)
    whole = min(60.0, 2.0 ** min(failures - 1, 10))
    assert whole / 2 <= delay <= whole


class QueueMachine(RuleBasedStateMachine):
    """Whatever happens in whatever order: every added key is worked on after it was added, none twice at once."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: WorkQueue[int] = WorkQueue()
        self.owed: set[int] = set()
        self.working: list[int] = []

    @rule(key=st.integers(0, 4), lane=st.sampled_from(Lane))
    def add(self, key: int, lane: Lane) -> None:
        self.queue.add(key, lane)
        self.owed.add(key)

    @rule()
    def take(self) -> None:
        if len(self.queue):
            rising = self.queue.waiting(Lane.SCALING) > 0
            key = asyncio.run(asyncio.wait_for(self.queue.get_rising() if rising else self.queue.get(), 10))
            assert key not in self.working
            self.working.append(key)
            self.owed.discard(key)

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.working:
            key = data.draw(st.sampled_from(self.working))
            self.working.remove(key)
            self.queue.done(key)

    @invariant()
    def owed_keys_wait_or_follow_their_pass(self) -> None:
        assert len(self.queue) == len(self.owed - set(self.working))


TestQueueMachine = QueueMachine.TestCase
