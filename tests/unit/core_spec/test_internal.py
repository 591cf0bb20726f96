"""What the operator remembers in status: where it lies for the apiserver, and where in a pass."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.internal import NEVER_OUTSIDE, PATHS, block, has_old_places, joined, stored
from enginewright.core.status import Status, read_status
from support.schemas import object_schema

CONTEST = {"manager": "kube-controller-manager", "deployment": "m-1", "time": "2026-11-25T12:00:00Z"}
IN_A_PASS: dict[str, Any] = {
    "replicas": 2, "contest": CONTEST, "pin": {"revision": "a1", "specKey": "k"},
    "source": {"key": "s", "digest": "sha256:1", "specKey": "k", "retry": ""},
    "build": {"fingerprint": "f", "retry": "2"},
    "rollout": {"stable": "a1", "readinessLosses": 2, "rolledBack": {"revision": "b2", "retry": "1"}},
}
WRITTEN = {
    "replicas": 2, "source": {"digest": "sha256:1"}, "build": {"fingerprint": "f"},
    "rollout": {"stable": "a1", "rolledBack": {"revision": "b2"}},
    "internal": {"contest": CONTEST, "pin": {"revision": "a1", "specKey": "k"},
                 "source": {"key": "s", "specKey": "k", "retry": ""}, "build": {"retry": "2"},
                 "rollout": {"readinessLosses": 2, "rolledBack": {"retry": "1"}}},
}
OLD = {**IN_A_PASS, "rollout": {"stable": "a1", "falls": 2, "rolledBack": {"revision": "b2", "retry": "1"}}}
LEAVES = st.text(max_size=3) | st.integers() | st.booleans()
RUBBISH = st.recursive(LEAVES | st.none(), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
    st.sampled_from(["internal", "source", "rollout", "falls", "key", "rolledBack", "retry", "pin"]), inner,
    max_size=3))


def test_what_only_the_operator_reads_is_written_below_one_field() -> None:
    assert stored(IN_A_PASS) == WRITTEN
    assert joined(WRITTEN) == IN_A_PASS


def test_a_status_of_an_older_operator_is_read_and_noticed() -> None:
    assert joined(OLD) == IN_A_PASS
    assert has_old_places(OLD)
    assert not has_old_places(WRITTEN)


@pytest.mark.parametrize("old", [{"contest": CONTEST}, {"server": {"image": "i", "digests": ["sha256:1"]}},
                                 {"rollout": {"falls": 1}}, {"build": {"fingerprint": "f", "specKey": "k"}}])
def test_any_old_place_is_noticed(old: dict[str, Any]) -> None:
    assert has_old_places(old)
    assert not has_old_places(stored(joined(old)))


def test_a_crd_without_the_field_gets_the_old_places() -> None:
    assert stored(IN_A_PASS, old_places=True) == OLD


def test_a_crd_without_the_field_gets_nothing_that_it_would_drop() -> None:
    status = {"rollout": {"stable": "a1", "candidate": "b2", "retry": "1"}}
    assert stored(status, old_places=True) == {"rollout": {"stable": "a1", "candidate": "b2"}}
    assert status["rollout"]["retry"] == "1", "the pass goes on with it"


@pytest.mark.parametrize("status", [WRITTEN, OLD])
def test_one_block_is_whole(status: dict[str, Any]) -> None:
    assert block(status, "source") == IN_A_PASS["source"]
    assert block(status, "server") == {}


@pytest.mark.parametrize("rubbish", [None, "x", {"server": 1}, {"internal": {"server": 1}}, {"internal": "x"}])
def test_rubbish_has_no_block(rubbish: object) -> None:
    assert block(rubbish, "server") == {}


def test_a_status_without_memory_has_no_empty_field() -> None:
    assert stored({"replicas": 1}) == {"replicas": 1}


def test_a_block_of_memory_alone_comes_back() -> None:
    alone = {"source": {"key": "s", "retry": ""}}
    assert stored(alone) == {"internal": alone}
    assert joined(stored(alone)) == alone


@given(RUBBISH)
def test_reading_never_fails(raw: object) -> None:
    has_old_places(raw)
    assert isinstance(read_status(raw), Status)


@given(st.fixed_dictionaries({}, optional={
    block: st.fixed_dictionaries({"shown": LEAVES}, optional={
        path.rpartition(".")[2]: LEAVES for path in PATHS if path.rpartition(".")[0] == block})
    for block in ("source", "server", "build", "rollout")}))
def test_nothing_is_lost_there_and_back(status: dict[str, Any]) -> None:
    assert joined(stored(status)) == status
    for path in NEVER_OUTSIDE:
        first, name = path.split(".")
        status.get(first, {}).pop(name, None)
    assert joined(stored(status, old_places=True)) == status


def test_the_schema_has_every_path_below_the_field_and_for_one_release_in_its_old_place() -> None:
    def properties(*, old_names: bool) -> dict[str, Any]:
        schema = object_schema(old_names=old_names)
        found: dict[str, Any] = schema["properties"]["status"]["properties"]
        return found

    def at(node: dict[str, Any], path: str) -> dict[str, Any] | None:
        first, *rest = path.split(".")
        found = node.get(first)
        return at(found["properties"], ".".join(rest)) if found and rest else found

    today, both = properties(old_names=False), properties(old_names=True)
    for path in PATHS:
        old = path.replace("readinessLosses", "falls")
        assert at(today["internal"]["properties"], path), path
        assert at(today, old) is None
        said = (at(both, old) or {}).get("description", "")
        assert (f"is now status.internal.{path}" in said) is (path not in NEVER_OUTSIDE), path
    assert "required" not in today["source"], "key was"
    assert today["server"]["required"] == ["image"]
