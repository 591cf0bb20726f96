"""A source model around another one: what it passes on unchanged."""

from __future__ import annotations

from enginewright_builder.models.base import SourceModel, Tokenize, end_token, pad_token, table_rows


class Wrapped:
    """Says of itself what ``inner`` does. Subclasses change what goes in or what comes out."""

    def __init__(self, inner: SourceModel) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def tokenize(self) -> Tokenize | None:
        return self._inner.tokenize

    @property
    def vocabulary(self) -> int:
        return self._inner.vocabulary

    @property
    def notes(self) -> tuple[str, ...]:
        return self._inner.notes

    @property
    def if_mismatched(self) -> str:
        return str(getattr(self._inner, "if_mismatched", ""))

    @property
    def candidate(self) -> str:
        return self._inner.candidate

    @property
    def pad_token(self) -> int:
        return pad_token(self._inner)

    @property
    def end_token(self) -> int | None:
        return end_token(self._inner)

    @property
    def table_rows(self) -> dict[str, int]:
        return table_rows(self._inner)
