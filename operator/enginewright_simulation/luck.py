"""All that is drawn by lot, each purpose with a stream of its own, so that one does not shift another."""

from __future__ import annotations

import random


def stream(purpose: str, seed: int) -> random.Random:
    """Repeatable; the same on every machine."""
    return random.Random(f"{purpose} {seed}")  # noqa: S311 - a simulation, not a secret
