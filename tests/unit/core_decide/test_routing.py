"""Who gets which share: hundredths, and nothing to a revision that cannot answer while another can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.routing import answerable, split

REVISIONS = st.sampled_from("abcd")


@pytest.mark.parametrize(("wanted", "ready", "given_to"), [
    ({"a": 80, "b": 20}, {"a": 3, "b": 1}, {"a": 80, "b": 20}),
    ({"a": 80, "b": 20}, {"a": 3, "b": 0}, {"a": 100}),
    ({"a": 80, "b": 20}, {"b": 1}, {"b": 100}),
    ({"a": 100}, {"b": 1, "c": 2}, {"c": 100}),
    ({"a": 100}, {}, {"a": 100}),
    ({"a": 20, "b": 80}, {}, {"b": 100}),
    ({}, {"a": 1}, {"a": 100}),
    ({}, {}, {}),
    ({"a": 50, "b": 30, "c": 20}, {"a": 1, "b": 1}, {"a": 63, "b": 37}),
])
def test_shares(wanted: dict[str, int], ready: dict[str, int], given_to: dict[str, int]) -> None:
    assert answerable(wanted, ready) == given_to


@given(st.dictionaries(REVISIONS, st.integers(0, 100)), st.dictionaries(REVISIONS, st.integers(0, 3)))
def test_shares_sum_to_a_hundred_and_go_to_who_answers(wanted: dict[str, int], ready: dict[str, int]) -> None:
    found = answerable(wanted, ready)
    if not found:
        assert not wanted
        assert not any(ready.values())
        return
    assert sum(found.values()) == 100
    assert min(found.values()) > 0
    if any(ready.values()):
        assert all(ready.get(revision) for revision in found)


@pytest.mark.parametrize(("share", "found"), [
    (20, {"new": 20, "old": 80}), (0, {"old": 100}), (-3, {"old": 100}), (100, {"new": 100}), (140, {"new": 100}),
])
def test_split(share: int, found: dict[str, int]) -> None:
    assert split("new", "old", share) == found
