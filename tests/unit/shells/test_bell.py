"""A wait that ends at its time, or when another task rings."""

from __future__ import annotations

import asyncio

from enginewright.observe.bell import Bell


async def test_it_ends_at_its_time() -> None:
    assert await Bell().within(0.001) is False


async def test_who_rings_ends_it_before() -> None:
    bell = Bell()
    waiting = asyncio.create_task(bell.within(3600))
    await asyncio.sleep(0)
    bell.ring()
    assert await waiting is True
    assert await bell.within(0.001) is False, "once"


async def test_a_ring_that_came_before_is_heard() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert [await bell.within(3600), await bell.within(0.001)] == [True, False]


async def test_a_ring_after_the_time_was_over_is_heard_the_next_time() -> None:
    bell = Bell()
    assert await bell.within(0) is False
    bell.ring()
    assert await bell.within(3600) is True


async def test_who_waits_can_be_cancelled() -> None:
    bell = Bell()
    waiting = asyncio.create_task(bell.within(3600))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    bell.ring()
    assert await bell.within(3600) is True
