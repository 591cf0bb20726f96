"""What the tokens of a model for speech mean. No SciPy: the resolve step reads it."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright_builder.tensors import Array


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Of a model for speech: ``tokens`` by number, the number of the blank, and the token between words."""

    tokens: tuple[str, ...]
    blank: int
    space: str = "|"

    def text(self, best: Array) -> str:
        """``best`` is the most likely token of each moment."""
        kept = [int(token) for index, token in enumerate(best)
                if token != self.blank and (index == 0 or token != best[index - 1])]
        words = "".join(self.tokens[token] if token < len(self.tokens) else "" for token in kept)
        return " ".join(words.replace(self.space, " ").split())
