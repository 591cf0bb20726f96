"""What files of this folder share."""

from __future__ import annotations

import pytest

from enginewright_builder.engines import modelopt_graphs


@pytest.fixture
def warm_modelopt(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that show what ModelOpt writes, and not that a process of its own writes it."""
    from support import warm_modelopt

    monkeypatch.setattr(modelopt_graphs, "subprocess", warm_modelopt)
