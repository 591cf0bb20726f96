"""Durations in words."""

from __future__ import annotations


def age(seconds: float) -> str:
    """As kubectl's: ``45s``, ``12m``, ``5h``, ``3d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
