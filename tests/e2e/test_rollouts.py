"""Rollouts that cannot hurt: a short ``make e2e-rollout`` on a real node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from demo.shell import Kube
from rollouts.cluster import CLAIMS, NAMESPACE, Corner
from rollouts.sequence import Wanted, drill
from support.janitor import Janitor


@pytest.fixture
def corner(kube: Kube, images: dict[str, str], janitor: Janitor) -> Iterator[Corner]:
    yield Corner(kube, images["builder"])
    janitor.remove(NAMESPACE, CLAIMS)


@pytest.mark.timeout(2400)
def test_nothing_is_lost_and_every_candidate_gets_what_it_deserves(corner: Corner, tmp_path: Path) -> None:
    # Other tests share the processors: an equal candidate may look slower for a minute, which the operator then says.
    wanted = Wanted(equal=1, bad=2, faults=("slow", "unrecorded"), kills=1, requests=5_000, rate=50, analysis=20,
                    tries_again=2)
    summary = drill(corner, wanted, tmp_path, Console())
    assert summary.good, summary
    assert (summary.rollouts, summary.rollbacks, summary.kills) == (1, 2, 1)
    assert summary.requests >= wanted.requests
    assert summary.most_pods == 3  # two wanted, and maxSurge 1
