"""An index of names holds what sets would, in less memory."""

from __future__ import annotations

import tracemalloc
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from enginewright.observe.naming import Names

NAMES = st.sampled_from("abc")
# Whether one is added, else taken away; its scope, its value and its name.
CHANGES = st.lists(st.tuples(st.booleans(), st.sampled_from(("pods", "jobs")), NAMES, NAMES), max_size=40)
MANY = 1000


@given(CHANGES)
def test_it_holds_what_sets_would(changes: list[tuple[bool, str, str, str]]) -> None:
    names, sets = Names(), defaultdict(set)
    for added, scope, value, name in changes:
        if added:
            names.add(scope, value, name)
            sets[scope, value].add(name)
        elif name in sets[scope, value]:
            names.remove(scope, value, name)
            sets[scope, value].remove(name)
        assert all(set(names.get(*one)) == held for one, held in sets.items())
    for (scope, value), held in sets.items():
        for name in held:
            names.remove(scope, value, name)
    assert names._scopes == {}


def test_a_name_that_has_its_value_to_itself_takes_no_set() -> None:
    words = [(f"value-{number}", f"name-{number}") for number in range(MANY)]
    names = Names()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for value, name in words:
        names.add("pods", value, name)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken / MANY < 120  # an entry of a dictionary; a set takes 216 bytes beside it
