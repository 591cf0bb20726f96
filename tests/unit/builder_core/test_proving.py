"""What a server that has served before cannot show of a replica's start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from enginewright_builder.proving import backend_seconds


@pytest.mark.parametrize(("first", "later", "seconds"), [(3.0, 1.0, 2.0), (1.0, 1.5, 0.0), (3.0, 0.0, 0.0)],
                         ids=["the backend", "noise", "nothing to compare with"])
def test_the_first_load_has_the_backend_in_it(first: float, later: float, seconds: float) -> None:
    swept: Any = SimpleNamespace(cold_start_seconds=first, warm_load_seconds=later)
    assert backend_seconds(swept) == seconds
