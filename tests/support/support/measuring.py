"""Fixture: builds in this process measure for no longer than tests need. What a build proves does not hang on how sure
it is which candidate is faster; a ``conftest.py`` imports the fixture where tests build."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def short_measurements() -> Iterator[None]:
    """The least that each measurement takes in a build whose budget is small, whatever the budget: a build may have
    more time than a busy machine needs, and does not spend it on measuring."""
    from enginewright_builder.steps import MEASURE_SECONDS, SWEEP_SECONDS

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("enginewright_builder.building.MEASURE_SECONDS",
                      {device: (least, least) for device, (least, _) in MEASURE_SECONDS.items()})
        patch.setattr("enginewright_builder.proving.SWEEP_SECONDS", (SWEEP_SECONDS[0], SWEEP_SECONDS[0]))
        patch.setattr("enginewright_builder.triton.memory.LEAST_SECONDS", 0.5)
        patch.setattr("enginewright_builder.triton.memory.STEADY_SECONDS", 0.5)
        yield
