"""What every block of ``status`` is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

TIME: dict[str, Any] = {"format": "date-time"}


class StatusModel(BaseModel):
    """Frozen; camelCase in YAML, snake_case in Python; None means absent. Unknown fields are of another version."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, validate_by_name=True,
                              validate_by_alias=True, allow_inf_nan=False, use_attribute_docstrings=True)

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


Block = TypeVar("Block", bound=StatusModel)


def read(kind: type[Block], raw: object) -> Block | None:
    """``raw`` as ``kind``, or None when it is absent or makes no sense."""
    if not isinstance(raw, Mapping):
        return None
    try:
        return kind.model_validate(dict(raw))
    except ValidationError:
        return None


def read_all(kind: type[Block], raw: object) -> tuple[Block, ...]:
    """The entries of a list that make sense."""
    entries = raw if isinstance(raw, list) else []
    return tuple(block for entry in entries if (block := read(kind, entry)) is not None)
