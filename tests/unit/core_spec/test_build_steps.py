"""Which of a build pod's containers does a step."""

from __future__ import annotations

import pytest

from enginewright_builder.contract import proves


@pytest.mark.parametrize(("step", "engine", "language_model"), [
    ("export", False, False), ("ladder", False, True), ("finalists", False, True), ("sweep", True, True),
    ("done", True, True), ("a later release's", False, False),
])
def test_which_container_does_it(step: str, engine: bool, language_model: bool) -> None:
    assert (proves(step, generates=False), proves(step, generates=True)) == (engine, language_model)
