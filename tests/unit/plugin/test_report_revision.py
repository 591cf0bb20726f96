"""Of which revision ``kubectl optimisedmodel report`` brings the page."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.plugin.wishes import WishError, also_live, reported

SERVES, WAITS = "0a1b2c3d", "4e1c0000"


def model(**rollout: str) -> dict[str, Any]:
    return {"metadata": {"name": "minilm", "namespace": "team"}, "status": {"rollout": rollout}}


WAITING = model(stable=SERVES, candidate=WAITS)


@pytest.mark.parametrize(("asked", "found"), [("", SERVES), ("4e1c", WAITS), (WAITS, WAITS), ("0a", SERVES)])
def test_it_is_what_serves_or_what_is_named(asked: str, found: str) -> None:
    assert reported(WAITING, asked) == found


def test_the_first_candidate_has_a_page_before_it_serves() -> None:
    first = model(candidate=WAITS)
    assert reported(first, "4e") == WAITS
    assert not also_live(first, WAITS)
    with pytest.raises(WishError, match="minilm serves no engine yet"):
        reported(first)


def test_what_is_not_there_is_told_with_what_is() -> None:
    with pytest.raises(WishError, match=f"'ffff' is no revision of minilm with replicas; those are {SERVES}, {WAITS}"):
        reported(WAITING, "ffff")


@pytest.mark.parametrize(("shown", "said"), [
    (SERVES, f"that of {WAITS}, which is being rolled out: kubectl optimisedmodel report minilm {WAITS} -n team"),
    (WAITS, f"that of {SERVES}, which serves: kubectl optimisedmodel report minilm {SERVES} -n team"),
])
def test_who_reads_one_page_learns_of_the_other(shown: str, said: str) -> None:
    assert also_live(WAITING, shown) == f"the page is of revision {shown}; {said}"
    assert not also_live(model(stable=SERVES), SERVES)
