"""Leases of builds that belong to no object any more."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from enginewright.core.collect_leases import collect_leases
from enginewright.core.observed import LeaseView
from enginewright.core.plan import ReleaseBuild

NOW = datetime(2026, 11, 29, tzinfo=UTC)
LEASE = LeaseView(name="engine-1", holder="ns/m/u", renewed=NOW - timedelta(seconds=121), seconds=120.0, version="7",
                  building=False)


def test_one_that_was_not_renewed_for_as_long_as_it_lasts_goes_in_the_version_that_was_seen() -> None:
    (action,) = collect_leases([LEASE], NOW)
    assert isinstance(action, ReleaseBuild)
    assert (action.name, action.version) == ("engine-1", "7")


@pytest.mark.parametrize("lease", [
    replace(LEASE, renewed=NOW - timedelta(seconds=119)),
    replace(LEASE, building=True),
])
def test_one_that_may_still_be_held_stays(lease: LeaseView) -> None:
    assert collect_leases([lease], NOW) == ()
