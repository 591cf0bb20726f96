"""Makes token ids of the texts that clients send: in the builder, to hold every engine against the source end to end,
and inside Triton's Python backend, to serve.

Copied beside ``model.py`` into the version folder; it may import only the standard library, NumPy and ``tokenizers``.

``tokeniser.json`` holds ``input``, the name of the texts; ``makes``, the source's inputs; and ``tokenizer``, the whole
tokenizer as that library writes it, with how it cuts and pads. The library does not pad here: which texts become one
batch is decided once their lengths are known.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
# What the library calls each of the inputs that it can make.
PARTS: dict[str, Callable[[Any], Sequence[int]]] = {
    "input_ids": lambda encoded: encoded.ids,
    "attention_mask": lambda encoded: encoded.attention_mask,
    "token_type_ids": lambda encoded: encoded.type_ids,
}


class Tokeniser:
    """``file`` is a ``tokeniser.json``. A batch of texts goes over at most ``threads`` threads; 0: the library's
    choice. Raises ``RuntimeError`` where this image has no ``tokenizers``, or one that cannot read the file."""

    def __init__(self, file: Path, threads: int = 0) -> None:
        if threads:  # read when the library makes its threads, once in a process
            os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise RuntimeError(f"texts need the Python package tokenizers, which does not import: {error}") from error
        described = json.loads(file.read_text(encoding="utf-8"))
        self.input, self.makes = str(described["input"]), [str(name) for name in described["makes"]]
        try:
            self._tokenizer = Tokenizer.from_str(json.dumps(described["tokenizer"]))
        except Exception as error:  # the library's own class
            raise RuntimeError(f"tokenizers cannot read this tokenizer: {error}") from error
        padding = self._tokenizer.padding or {}
        self._tokenizer.no_padding()
        # What each input is filled up with, and whether in front.
        self.fill: dict[str, int] = {"input_ids": padding.get("pad_id", 0), "attention_mask": 0,
                                     "token_type_ids": padding.get("pad_type_id", 0)}
        self.left = padding.get("direction") == "left"

    def rows(self, texts: NDArray[Any]) -> list[Arrays]:
        """Of ``object[batch, 1]`` of texts, or ``object[batch, 2]`` of pairs, the source's own inputs to each, of
        ``int64[1, its tokens]``. Raises ``ValueError`` for a text that is no UTF-8, or that has no token at all."""
        encoded = self._tokenizer.encode_batch(self._entries(texts))
        for place, one in enumerate(encoded):
            if not any(one.attention_mask):
                raise ValueError(f"{self.input}: text {place} has no token; send one that is not empty")
        return [{name: np.array([PARTS[name](one)], dtype=np.int64) for name in self.makes} for one in encoded]

    def padded(self, rows: Sequence[Arrays]) -> Arrays:
        """``rows`` as one batch, as long as the longest of them."""
        return {name: self._filled(name, [row[name][0] for row in rows]) for name in self.makes}

    def arrays(self, texts: NDArray[Any]) -> Arrays:
        """All ``texts`` as one batch. Raises as :meth:`rows` does."""
        return self.padded(self.rows(texts))

    def _filled(self, name: str, rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
        longest = max(len(row) for row in rows)
        filled = np.full((len(rows), longest), self.fill[name], np.int64)
        for line, row in zip(filled, rows, strict=True):
            line[longest - len(row) if self.left else 0:][:len(row)] = row
        return filled

    def _entries(self, texts: NDArray[Any]) -> list[Any]:
        known = [self._text(place, entry) for place, entry in enumerate(texts.ravel())]
        return known if texts.shape[1] == 1 else list(zip(known[::2], known[1::2], strict=True))

    def _text(self, place: int, entry: Any) -> str:
        """Triton hands over bytes."""
        try:
            return entry.decode() if isinstance(entry, bytes) else str(entry)
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.input}: text {place} is no UTF-8: {error.reason} at byte {error.start}; send UTF-8"
                             ) from error
