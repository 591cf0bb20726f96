"""What holds for every plan, and what single plans say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.planner.fleet import GPU, Demand, Option, Plan, Unplaced
from enginewright.core.planner.planner import occupied, plan
from enginewright.core.planner.pools import choices, pools
from enginewright.core.planner.select import select
from support.fleets import A30, A100, H100, demand_lists, fleets, free, gpu, overlaps, proposed, used, wants, worth


@given(fleets(), demand_lists())
def test_every_plan_can_be_carried_out(gpus: list[GPU], demands: list[Demand]) -> None:
    made = plan(demands, gpus)
    later = proposed(made)
    assert overlaps(gpus, made.seats, cut=False) == []
    assert overlaps(occupied(gpus, made.seats), later, cut=True) == []
    for demand in demands:
        mine = [seat for seat in (*made.seats, *later) if seat.demand == demand.name]
        missing = sum(one.replicas for one in made.unplaced if one.demand == demand.name and one.why != "layout")
        assert len(mine) + missing == demand.replicas
        for seat in mine:
            option = demand.options[seat.option]
            assert (seat.profile, len(seat.gpus)) == (option.profile, option.gpus if not option.profile else 1)
        for numbers in ([seat.replica for seat in made.seats if seat.demand == demand.name],):
            assert sorted(numbers) == list(range(len(numbers)))


@given(fleets(), demand_lists(), st.randoms(use_true_random=False))
def test_the_order_of_gpus_does_not_matter(gpus: list[GPU], demands: list[Demand], draw: object) -> None:
    shuffled = gpus[:]
    draw.shuffle(shuffled)  # type: ignore[attr-defined]
    assert plan(demands, shuffled) == plan(demands, gpus)


@given(fleets(), demand_lists(), st.sampled_from((H100, A30)))
def test_more_hardware_never_places_less(gpus: list[GPU], demands: list[Demand], product: str) -> None:
    dynamic = [replace(one, layout="dynamic") for one in gpus]
    before = worth(demands, plan(demands, dynamic).seats)
    more = [*dynamic, GPU(node="zz", index=0, product=product, layout="dynamic")]
    assert worth(demands, plan(demands, more).seats) >= before - 1e-9


@given(fleets(), demand_lists())
def test_who_runs_stays_where_they_are(gpus: list[GPU], demands: list[Demand]) -> None:
    made = plan(demands, gpus)
    after = {(one.node, one.index): one for one in occupied(occupied(gpus, made.seats), proposed(made))}
    for one in gpus:
        then = after[one.node, one.index]
        assert one.used_by in ("", then.used_by)
        assert {i for i in one.instances if i.used_by} <= set(then.instances)


def only(made: Plan) -> Unplaced:
    (one,) = made.unplaced
    return one


def test_slices_that_exist_are_taken_first() -> None:
    made = plan([wants("m", 2, "1g.10gb")], [gpu("a", 0, H100, free("1g.10gb", 3), free("1g.10gb", 5))])
    assert [(seat.start, seat.exists) for seat in made.seats] == [(3, True), (5, True)]
    assert (made.unplaced, made.changes) == ((), ())


def test_a_layout_is_only_proposed() -> None:
    fleet = [gpu("a", 0, H100, used("3g.40gb", 0), free("3g.40gb", 4))]
    made = plan([wants("m", 2, "1g.10gb")], fleet)
    assert made.seats == ()
    (change,) = made.changes
    assert change.before == (("3g.40gb", 0), ("3g.40gb", 4))
    assert change.after[0] == ("3g.40gb", 0)
    assert [profile for profile, _ in change.after[1:]] == ["1g.10gb", "1g.10gb"]
    assert (only(made).why, only(made).message) == ("layout", "would fit if GPU a/0 were cut as proposed")


def test_free_slices_beside_a_proposal_stay() -> None:
    fleet = [gpu("a", 0, H100, free("1g.10gb", 0), free("3g.40gb", 4))]
    (change,) = plan([wants("m", 1, "2g.20gb")], fleet).changes
    assert change.after == (("1g.10gb", 0), ("2g.20gb", 2), ("3g.40gb", 4))


def test_only_fragmentation_stands_in_the_way() -> None:
    fleet = [gpu("a", index, H100, used("1g.10gb", 0, f"x-{index}"), layout="dynamic") for index in range(2)]
    made = plan([wants("m", 1, "7g.80gb")], fleet)
    assert only(made).why == "fragmentation"
    assert only(made).message == ("would fit on GPU a/0 as 7g.80gb at slice 0 if x-0 moved to another GPU; there is "
                                  "room for it")


def test_pieces_that_no_single_move_mends() -> None:
    ones = [used("1g.10gb", start, f"x-{start}") for start in (0, 2, 4)]
    fleet = [gpu("a", index, H100, *ones, used("1g.10gb", 6), layout="dynamic") for index in range(2)]
    made = plan([wants("m", 1, "7g.80gb")], fleet)
    assert only(made).why == "capacity"  # eight slices of seven


def test_too_little_is_called_capacity() -> None:
    made = plan([wants("m", 3, "7g.80gb")], [gpu("a", 0, layout="dynamic"), gpu("a", 1, layout="dynamic")])
    assert len(made.seats) == 2
    assert (only(made).why, only(made).replicas) == ("capacity", 1)
    assert "0 of 16 memory slices are free" in only(made).message


def test_a_layout_that_must_stay_is_named() -> None:
    made = plan([wants("m", 1, "1g.10gb")], [gpu("a", 0, H100, free("7g.80gb", 0), layout="kept")])
    assert (only(made).why, made.changes) == ("kept", ())


def test_hardware_that_is_not_there() -> None:
    demand = Demand(name="m", replicas=1, options=(Option(profile="1g.18gb", products=("NVIDIA-H200",)),))
    made = plan([demand], [gpu("a", 0, H100), gpu("b", 0, A100)])
    assert only(made).why == "hardware"
    have = f"the nodes that it may run on have {A100} and {H100}"
    assert only(made).message == f"needs 1g.18gb of NVIDIA-H200, and {have}"


def test_nodes_that_a_model_may_not_use() -> None:
    fleet = [gpu("a", 0, layout="dynamic"), gpu("b", 0, layout="dynamic")]
    made = plan([wants("m", 9, "1g.10gb", nodes=frozenset({"b"}))], fleet)
    assert {seat.node for seat in made.seats} == {"b"}
    assert len(made.seats) == 7


def test_replicas_of_several_gpus_stay_on_one_node() -> None:
    fleet = [gpu(node, index) for node, count in (("a", 3), ("b", 4), ("c", 1)) for index in range(count)]
    big = Demand(name="big", replicas=1, options=(Option(gpus=4),), weight=4.0)
    small = Demand(name="small", replicas=1, options=(Option(gpus=3),), weight=3.0)
    made = plan([wants("one", 1, ""), small, big], fleet)
    assert sorted((seat.demand, seat.node, seat.gpus) for seat in made.seats) == [
        ("big", "b", (0, 1, 2, 3)), ("one", "c", (0,)), ("small", "a", (0, 1, 2))]


def test_small_replicas_go_where_something_runs_already() -> None:
    fleet = [gpu("a", 0, layout="dynamic"), gpu("b", 0, H100, used("1g.10gb", 0), layout="dynamic")]
    (seat,) = plan([wants("m", 1, "1g.10gb")], fleet).seats
    assert (seat.node, seat.start) == ("b", 1)  # beside the other one, in the pair that is broken anyway


def test_what_is_worth_more_goes_first() -> None:
    fleet = [gpu("a", 0, H100, free("1g.10gb", 0))]
    made = plan([wants("dull", 1, "1g.10gb"), wants("dear", 1, "1g.10gb", weight=2.0)], fleet)
    assert [seat.demand for seat in made.seats] == ["dear"]


@pytest.mark.parametrize(("slower", "expected"), [(90.0, "dear"), (10.0, "other")])
def test_a_slice_that_holds_less_counts_for_less(slower: float, expected: str) -> None:
    options = (Option(profile="2g.20gb", throughput=100.0), Option(profile="1g.10gb", throughput=slower))
    demands = [Demand(name="dear", replicas=1, options=options), wants("other", 1, "1g.10gb", weight=0.5)]
    made = plan(demands, [gpu("a", 0, H100, free("1g.10gb", 0), layout="kept")])
    assert [seat.demand for seat in made.seats] == [expected]


def test_a_slice_with_media_engines_is_used_but_never_proposed() -> None:
    made = plan([wants("m", 2, "1g.10gb+me")], [gpu("a", 0, H100, free("1g.10gb+me", 0))])
    assert len(made.seats) == 1
    assert made.changes == ()


def test_one_filling_takes_all_that_fit_and_then_no_more() -> None:
    demands = [wants(name, 3, "1g.10gb") for name in "abcd"]
    fleet = pools([gpu(layout="dynamic")], demands, cut=True)
    chosen = select(demands, fleet, choices(demands, fleet), budget=0)
    assert chosen.left == [0, 0, 2, 3]
    assert chosen.asked == 4
