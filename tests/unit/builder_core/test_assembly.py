"""One engine where one is enough, else the fewest that are the best of each bucket."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.competition.assembly import Contender, assemble
from enginewright_builder.competition.race import ZONE, Ratio

BUCKETS = (1, 8, 32)


def ratio(value: float) -> Ratio:
    return Ratio(value=value, low=value * 0.995, high=value * 1.005, rounds=28)


def contender(name: str, *slowness: float | None, accuracy: float = 0.999, size: int = 100, native: bool = False,
              covers: tuple[int, ...] = BUCKETS, joinable: bool = True) -> Contender:
    held = {batch: ratio(value) for batch, value in zip(BUCKETS, slowness, strict=False) if value is not None}
    return Contender(name=name, held=held, covers=frozenset(covers), accuracy=accuracy, size_bytes=size, native=native,
                     joinable=joinable)


def everywhere(name: str) -> dict[int, str]:
    return dict.fromkeys(BUCKETS, name)


@pytest.mark.parametrize(("contenders", "expected"), [
    ([contender("a", 1.0, 1.0, 1.0), contender("b", 1.2, 1.2, 1.2)], everywhere("a")),
    ([contender("a", 1.0, 1.0, 1.01, accuracy=0.99), contender("b", 1.01, 1.01, 1.0)], everywhere("b")),
    ([contender("a", 1.0, 1.0, 1.01, size=50), contender("b", 1.01, 1.01, 1.0)], everywhere("a")),
    ([contender("a", 1.0, 1.0, 1.0), contender("b", 1.01, 1.01, 1.0, accuracy=0.99, native=True)], everywhere("b")),
    ([contender("a", 1.0, 1.5, 1.5), contender("b", 1.5, 1.0, 1.0)], {1: "a", 8: "b", 32: "b"}),
    ([contender("a", 1.0, covers=(1,)), contender("b", 1.4, 1.0, 1.0)], {1: "a", 8: "b", 32: "b"}),
    ([contender("a", 1.0, covers=(1,)), contender("b", 1.01, 1.0, 1.0)], everywhere("b")),
    ([contender("a", 1.0, 2, 2), contender("b", 2, 1.0, 2), contender("c", 2, 2, 1.0)], {1: "a", 8: "b", 32: "c"}),
    # Two members are enough, though the third is a little better in one bucket.
    ([contender("a", 1.0, 1.01, 2), contender("b", 2, 1.0, 2), contender("c", 2, 2, 1.0)], {1: "a", 8: "a", 32: "c"}),
    # The server's Python cannot run TensorRT beside others.
    ([contender("a", 1.0, 1.5, 1.5), contender("b", 1.2, 1.0, 1.0, joinable=False)], everywhere("b")),
    ([contender("a", 1.0, 1.0, None), contender("b", None, None, None)], None),
    ([], None),
], ids=["fastest", "more accurate", "smaller", "native", "two", "tuned for one", "tuned, not worth it", "three",
        "no third member", "cannot be joined", "nobody for a bucket", "nobody"])
def test_what_ships(contenders: list[Contender], expected: dict[int, str] | None) -> None:
    assert assemble(contenders, BUCKETS, BUCKETS) == expected


def test_a_bucket_out_of_use_decides_nothing_but_is_served() -> None:
    narrow, wide = contender("narrow", 1.0, 1.0, covers=(1, 8)), contender("wide", 1.5, 1.5)
    assert assemble([narrow, wide], (1, 8), BUCKETS) == {1: "narrow", 8: "narrow", 32: "wide"}
    assert assemble([contender("a", 1.0, 1.0), wide], (1, 8), BUCKETS) == everywhere("a")


@st.composite
def fields(draw: st.DrawFn) -> list[Contender]:
    """Wide and narrow contenders with a fastest one in each bucket, as there always is."""
    count = draw(st.integers(1, 6))
    slowness = {batch: [draw(st.floats(1.0, 2.0)) for _ in range(count)] for batch in BUCKETS}
    ranges = [frozenset(BUCKETS), *(frozenset({size}) for size in BUCKETS)]
    takes = [ranges[0], *(draw(st.sampled_from(ranges)) for _ in range(count - 1))]
    made = []
    for index in range(count):
        held = {}
        for batch in takes[index]:
            fastest = min(slowness[batch][other] for other in range(count) if batch in takes[other])
            held[batch] = ratio(slowness[batch][index] / fastest)
        made.append(Contender(name=f"c{index}", held=held, covers=takes[index],
                              accuracy=draw(st.sampled_from([0.99, 0.995, 0.999])),
                              size_bytes=draw(st.sampled_from([10, 20])), native=draw(st.booleans())))
    return made


@given(contenders=fields(), seed=st.integers(0, 1000))
def test_what_ships_is_near_the_best_covers_all_and_does_not_depend_on_the_order(contenders: list[Contender],
                                                                                 seed: int) -> None:
    ships = assemble(contenders, BUCKETS, BUCKETS)
    assert ships is not None
    by_name = {one.name: one for one in contenders}
    for batch in BUCKETS:
        assert batch in by_name[ships[batch]].covers
        assert by_name[ships[batch]].held[batch].value <= 1 + ZONE
    if any(all(one.near(batch) for batch in BUCKETS) for one in contenders):
        assert len(set(ships.values())) == 1
    shuffled = random.Random(seed).sample(contenders, len(contenders))
    assert assemble(shuffled, BUCKETS, BUCKETS) == ships
