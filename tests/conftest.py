"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no defect: timing never decides a test.
settings.register_profile("enginewright", deadline=None)
settings.load_profile("enginewright")
