"""Which files of an artifact are of what stands around its engine in the Python backend, the same for all members of a
composite: the tokenizer of texts, and functions of the user's own."""

from __future__ import annotations

from enginewright_builder.own_steps import is_own
from enginewright_builder.texts import TOKENISER_FILE


def is_around(name: str) -> bool:
    return name == TOKENISER_FILE or is_own(name)
