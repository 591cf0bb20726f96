"""The safe set as text: the operator writes it into the pod, the container beside the server reads it."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from enginewright.core.batching.safe import SafeSet
from enginewright_builder.contract import canonical

_SAFE_SET = TypeAdapter(SafeSet)


def safe_set_to_text(safe: SafeSet) -> str:
    """JSON, the same for the same set."""
    return canonical(_SAFE_SET.dump_python(safe, mode="json"))


def safe_set_from_text(text: str) -> SafeSet:
    """Raises ``ValueError`` where it is none, or has no batches to choose from."""
    try:
        found = _SAFE_SET.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'safe set'}: {first['msg']}") from None
    if len(found.curve) < 2 or found.max_batch < 2:
        raise ValueError("safe set: a curve of at least two batches and a maximum of at least 2 are needed")
    return found
