"""Calls from the watching thread into the loop: none is lost, all in order, and the loop is woken once for many."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from enginewright.reconcile.hand_over import AT_ONCE, HandOver


def in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


class Loop:
    """Counts how often another thread wakes it, and takes what it was woken for when it is told to."""

    def __init__(self) -> None:
        self.woken = 0
        self.due: list[Callable[[], None]] = []

    def call_soon_threadsafe(self, take: Callable[[], None]) -> None:
        self.woken += 1
        self.due.append(take)

    def call_soon(self, take: Callable[[], None]) -> None:
        self.due.append(take)

    def turn(self) -> None:
        due, self.due = self.due, []
        for take in due:
            take()


def test_calls_of_two_kinds_come_in_the_order_in_which_they_were_made_and_wake_the_loop_once() -> None:
    loop, came = Loop(), list[str]()
    hand = HandOver(loop)  # type: ignore[arg-type]
    saw, wake = hand.over(lambda name: came.append(f"saw {name}")), hand.over(lambda name: came.append(f"wake {name}"))
    for name in ("a", "b"):
        saw(name)
        wake(name)
    assert (loop.woken, came) == (1, [])
    loop.turn()
    assert came == ["saw a", "wake a", "saw b", "wake b"]
    saw("c")
    assert loop.woken == 2
    loop.turn()
    assert came[-1] == "saw c"


def test_the_loop_gets_to_other_work_between_many() -> None:
    loop, came = Loop(), list[int]()
    give = HandOver(loop).over(came.append)  # type: ignore[arg-type]
    for number in range(AT_ONCE + 1):
        give(number)
    loop.turn()
    assert came == list(range(AT_ONCE))
    loop.turn()
    assert came == list(range(AT_ONCE + 1))
    assert (loop.woken, loop.due) == (1, [])


def test_what_one_call_raises_keeps_no_other_from_coming() -> None:
    loop, came = Loop(), list[int]()

    def take(number: int) -> None:
        if number == 0:
            raise ValueError("a defect")
        came.append(number)

    give = HandOver(loop).over(take)  # type: ignore[arg-type]
    for number in range(3):
        give(number)
    with pytest.raises(ValueError, match="a defect"):
        loop.turn()
    loop.turn()
    assert came == [1, 2]


def test_nothing_is_lost_between_two_threads() -> None:
    async def take() -> list[int]:
        came, done = list[int](), asyncio.Event()
        give = HandOver(asyncio.get_running_loop()).over(
            lambda number: done.set() if number is None else came.append(number))
        sender = threading.Thread(target=lambda: [give(number) for number in (*range(20_000), None)])
        sender.start()
        async with asyncio.timeout(60):
            await done.wait()
        sender.join()
        return came

    assert asyncio.run(take()) == list(range(20_000))


def test_after_the_loop_has_ended_calls_are_dropped() -> None:
    async def made() -> tuple[HandOver, Callable[..., None]]:
        hand = HandOver(asyncio.get_running_loop())
        return hand, hand.over(lambda: None)

    hand, give = asyncio.run(made())
    in_thread(give)
    in_thread(give)
    assert not hand._waiting
