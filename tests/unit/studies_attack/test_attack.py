"""What the attack drill says of its own figures, and that its replicas are as hostile as they are meant to be."""

from __future__ import annotations

from typing import Any

import pytest

from attack.__main__ import _broken
from attack.cast import HOSTILE, MOST, TRAP, Cast
from attack.drill import figures
from attack.eyes import Scales
from attack.replicas import Hostile, filled
from enginewright.clients.triton import parse_metrics


def test_every_replica_has_an_address_of_its_own() -> None:
    cast = Cast()
    assert [len(cast.addresses(kind)) for kind in HOSTILE] == [100, 20, 5]
    assert len(cast.addresses("honest")) == 50 * MOST
    known = [address for kind in ("honest", *HOSTILE) for address in cast.addresses(kind)]
    assert len({*known, TRAP}) == len(known) + 1


@pytest.mark.parametrize("size", [1000, 250 << 10, 4 << 20])
def test_a_hostile_page_is_full(size: int) -> None:
    page = filled(size)
    assert size - 100 < len(page) <= size
    assert page.endswith(b" 0\n")


def test_a_hostile_page_is_one_that_the_operator_takes() -> None:
    assert len(parse_metrics(filled(1000)).pending) > 10


def test_each_kind_of_replica_attacks_in_its_own_way_and_only_in_an_attack() -> None:
    cast = Cast()
    hostile = Hostile(cast)
    one = {kind: cast.addresses(kind)[0] for kind in HOSTILE}
    assert all(b"200 OK" in (hostile.answer(address) or b"") for address in one.values())
    assert not +hostile.count
    hostile.size(4 << 20)
    assert len(hostile.answer(one["pages"]) or b"") > 4_000_000
    assert hostile.answer(one["silent"]) is None
    assert f"Location: http://{TRAP}:" in (hostile.answer(one["redirect"]) or b"").decode()
    hostile.answer(TRAP)
    assert +hostile.count == {"pages": 1, "unanswered": 1, "redirects": 1, "redirects_followed": 1}


def test_the_first_write_of_so_many_replicas_counts() -> None:
    scales = Scales()
    for line in ("honest-1 1", "honest-1 3", "honest-1 3"):
        scales.take(line.split())
    assert scales.first[("honest-1", 2)] == scales.first[("honest-1", 3)] >= scales.first[("honest-1", 1)]
    assert ("honest-1", 4) not in scales.first


def test_a_breach_without_an_answer_is_told() -> None:
    found = figures([0.5, 1.5, 3.0, float("inf")])
    assert found == {"breaches": 4, "without_answer": 1, "within_2_s": 2,
                     "seconds_to_scale": {"p50": 1.5, "p95": 3.0, "max": 3.0}}
    assert figures([float("inf")])["seconds_to_scale"]["max"] is None


GOOD: dict[str, Any] = {
    "act": "a", "breaches": 50, "within_2_s": 50, "operator_peak_mib": 200.0, "hostile": {},
    "lease": {"holders": 1, "longest_since_renewal_seconds": 2.0},
}


@pytest.mark.parametrize(("change", "said"), [
    ({}, []),
    ({"within_2_s": 48}, ["a: 2 of 50 breaches were not answered within 2 s"]),
    ({"operator_peak_mib": 600.0}, ["a: the operator took 600.0 MiB of 512Mi"]),
    ({"hostile": {"redirects_followed": 3}}, ["a: 3 redirects were followed"]),
])
def test_every_bound_that_broke_is_told(change: dict[str, Any], said: list[str]) -> None:
    assert _broken({**GOOD, **change}, "512Mi") == said


@pytest.mark.parametrize("lease", [{"holders": 2, "longest_since_renewal_seconds": 2.0},
                                   {"holders": 0, "longest_since_renewal_seconds": 0.0},
                                   {"holders": 1, "longest_since_renewal_seconds": 10.5}])
def test_a_lease_that_was_not_held_is_told(lease: dict[str, Any]) -> None:
    assert "the Lease was not held throughout" in "".join(_broken({**GOOD, "lease": lease}, "512Mi"))
