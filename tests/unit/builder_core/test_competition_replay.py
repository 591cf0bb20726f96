"""The race keeps what docs/adr/0006 says of it, on a few of the same seeded machines."""

from __future__ import annotations

import numpy as np
import pytest

from competition.replay import race, uniform
from competition.tracks import MEASURED, MadeUp, Recorded
from enginewright_builder.competition.race import LOOKS, ZONE

SEEDS = range(2)


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_the_pick_is_within_the_zone_for_a_part_of_the_time(noise: float) -> None:
    raced = [race(MadeUp(name, noise, seed)) for name in MEASURED for seed in SEEDS]
    whole = [uniform(LOOKS[-1])(MadeUp(name, noise, seed)) for name in MEASURED for seed in SEEDS]
    assert np.mean([run.regret <= ZONE for run in raced]) >= 0.95
    assert max(run.worst for run in raced) <= 2 * ZONE
    assert sum(run.seconds for run in raced) <= 0.6 * sum(run.seconds for run in whole)


def test_a_recorded_machine_is_drawn_in_runs_and_keeps_its_truth() -> None:
    rng = np.random.default_rng(0)
    patches = np.where(np.arange(400) % 100 < 30, 2.0, 1.0)
    times = {name: (milliseconds * patches * rng.lognormal(0, 0.02, 400)).tolist()
             for name, milliseconds in {"fast": 10.0, "slow": 12.0, "hopeless": 40.0}.items()}
    track = Recorded(times, seed=1)
    assert track.true["slow"] / track.true["fast"] == pytest.approx(1.2, rel=0.02)
    drawn = track.rounds(["fast", "slow"], 60)
    first = times["fast"].index(drawn["fast"][0])
    assert drawn["slow"][1] == times["slow"][(first + 1) % 400]
    assert race(track).regret == 0.0
