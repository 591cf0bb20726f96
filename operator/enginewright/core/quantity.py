"""Kubernetes quantities: ``500m``, ``2Gi``, ``1e3``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_SUFFIX = {"": Decimal(1), "m": Decimal("0.001"), "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
           "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
           **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}}
_FORM = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(?:([kMGTPEm]i?|Ki)|[eE]([+-]?[0-9]{1,3}))?")
# Of a live figure in status, a relative change that is worth a write.
VISIBLE: Final = 0.1


def parse_quantity(text: str | int) -> Decimal:
    """The number that ``text`` means, in its base unit (cores, bytes). Raises ValueError when it is no quantity."""
    match = _FORM.fullmatch(str(text))
    if match is None or (match[2] or "") not in _SUFFIX:
        raise ValueError(f"{text!r} is not a quantity such as 500m or 2Gi")
    number = Decimal(match[1])
    return number * Decimal(10) ** int(match[3]) if match[3] else number * _SUFFIX[match[2] or ""]


def count(number: int, noun: str) -> str:
    """``1 replica``, ``2 replicas``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def legible(measured: float | None) -> float | None:
    """Five digits: more would be the clock's noise, and hard to read."""
    return None if measured is None else float(f"{measured:.5g}")
