"""For functions that are computed once for each value, of values that cannot be hashed: known again by identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, eq=False)
class Same(Generic[Value]):
    """Equal to what holds the very same object. It keeps the object alive, so that no other one gets its identity; the
    object must never change."""

    value: Value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
