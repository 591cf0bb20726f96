"""Which candidates ship, and for which batches, from the build's outcome to what a user sees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginewright.core.decide.blocks import MAX_CANDIDATES, MAX_NAME, MAX_WORDS, candidate_blocks, shipped_words
from enginewright_builder.contract import Outcome, ServingChoice
from support.cluster import Cluster, built, candidate, resolved


@pytest.mark.parametrize(("serves", "words"), [
    ({"tensorrt fp16": (1, 8, 32), "torch fp16": ()}, "tensorrt fp16"),
    ({"torch fp16": (8, 32), "tensorrt fp16 @1": (1,)}, "tensorrt fp16 @1 to batch 1, torch fp16 to 32"),
    ({"a": (1, 32), "b": (8,)}, "a to batch 1, b to 8, a to 32"),
    ({"a": ()}, None),
    ({}, None),
])
def test_who_ships_up_to_which_batch(serves: dict[str, tuple[int, ...]], words: str | None) -> None:
    assert shipped_words(candidate(name=name, serves=batches) for name, batches in serves.items()) == words


def test_what_status_takes_is_bounded() -> None:
    many = [candidate(name="n" * 500, serves=(size,)) for size in range(1, 200)]
    told = candidate_blocks(many)
    assert len(told) == MAX_CANDIDATES
    assert {len(one.name or "") for one in told} == {MAX_NAME}
    long = shipped_words(replace(one, name=f"{index} {one.name}") for index, one in enumerate(many))
    assert len(long or "") == MAX_WORDS


def serving(outcome: Outcome) -> Cluster:
    cluster = Cluster()
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(outcome)
    cluster.operate()
    return cluster


TEAM = (candidate(name="torch fp16", verdict="Shipped", serves=(8, 32)),
        candidate(name="tensorrt fp16 @1", verdict="Shipped", serves=(1,)),
        candidate(name="tensorrt fp32", verdict="Slower"))


def test_status_has_names_and_buckets_and_one_line_of_both() -> None:
    cluster = serving(replace(built(), candidates=TEAM))
    told = cluster.status["candidates"]
    assert [one["name"] for one in told] == ["torch fp16", "tensorrt fp16 @1", "tensorrt fp32"]
    assert [one.get("serves") for one in told] == [[8, 32], [1], None]
    words = "tensorrt fp16 @1 to batch 1, torch fp16 to 32"
    assert cluster.status["engine"]["ships"] == words
    assert cluster.status["summary"]["ships"] == words


def test_it_is_still_said_when_the_record_has_gone() -> None:
    cluster = serving(replace(built(), candidates=TEAM))
    cluster.settle()
    assert cluster.says("Ready").startswith("True/")
    words = cluster.status["summary"]["ships"]
    cluster.records.clear()
    cluster.operate()
    assert words
    assert cluster.status["summary"]["ships"] == words


def test_an_engine_of_an_older_builder_says_nothing_of_it() -> None:
    cluster = serving(built())
    assert "ships" not in cluster.status["engine"]
    assert "name" not in cluster.status["candidates"][0]


def test_a_model_that_takes_no_batches_is_told() -> None:
    cluster = serving(replace(built(), serving=ServingChoice(max_batch_size=0, instance_count=2)))
    assert cluster.status["batching"]["maxBatchSize"] == 0
    assert "The model takes no batches, so the server joins no requests" in cluster.condition("EngineBuilt")["message"]
    assert "takes no batches" not in serving(built()).condition("EngineBuilt")["message"]
