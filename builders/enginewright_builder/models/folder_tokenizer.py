"""The tokenizer of a Hugging Face folder, as transformers loads it, and the file by which a server makes the same token
ids without that library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from enginewright_builder.errors import UserError
from enginewright_builder.pod.python_model.tokeniser import PARTS
from enginewright_builder.tensors import Array, Tensors

_FIELD = "spec.interface.inputs.preprocess.fromSource"


class FolderTokenizer:
    """Makes the inputs ``names`` of texts, cut to ``limit`` tokens and padded to the longest, or, where they are to be
    ``filled``, to ``limit``. ``library`` is a tokenizer of transformers."""

    def __init__(self, library: Any, names: tuple[str, ...], limit: int, *, filled: bool = False) -> None:
        self.library, self.names, self.limit, self._filled = library, names, limit, filled

    def filled_to(self, length: int) -> FolderTokenizer:
        return FolderTokenizer(self.library, self.names, length, filled=True)

    def __call__(self, texts: Sequence[str]) -> Tensors:
        return self._encoded(list(texts))

    def arrays(self, texts: Array) -> Tensors:
        """Of ``object[batch, 1]``, or of ``object[batch, 2]``, which are pairs."""
        return self._encoded(*(side.tolist() for side in texts.T))

    def _encoded(self, *sides: list[str]) -> Tensors:
        encoded = self.library(*sides, padding="max_length" if self._filled else True, truncation=True,
                               max_length=self.limit, return_tensors="np")
        return {name: np.asarray(encoded[name], dtype=np.int64) for name in self.names}

    def write(self, file: Path, name: str) -> None:
        """What :class:`~enginewright_builder.pod.python_model.tokeniser.Tokeniser` reads; ``name`` is the input of the
        texts. Raises :class:`UserError` ``InterfaceInvalid`` for a tokenizer that the library ``tokenizers`` is not all
        of."""
        if not getattr(self.library, "is_fast", False):
            raise _unsupported("it runs in Python, not in the library tokenizers", type(self.library).__name__)
        if unknown := [one for one in self.names if one not in PARTS]:
            raise _unsupported(f"it makes {unknown[0]}, and servers make {', '.join(PARTS)}", unknown[0])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"input": name, "makes": list(self.names), "tokenizer": self._settings()}),
                        encoding="utf-8")

    def _settings(self) -> Mapping[str, Any]:
        """All of it as transformers uses it, which may have changed what ``tokenizer.json`` says by
        ``tokenizer_config.json``; with how it cuts and pads."""
        from tokenizers import Tokenizer

        library = self.library
        served = Tokenizer.from_str(library.backend_tokenizer.to_str())
        served.enable_truncation(self.limit, stride=0, strategy="longest_first", direction=library.truncation_side)
        if library.pad_token is None:
            raise _unsupported("it has no token to pad with", "pad_token")
        served.enable_padding(direction=library.padding_side, pad_id=library.pad_token_id,
                              pad_type_id=library.pad_token_type_id, pad_token=library.pad_token)
        settings: Mapping[str, Any] = json.loads(served.to_str())
        return settings


def _unsupported(what: str, value: str) -> UserError:
    return UserError("InterfaceInvalid", f"the source's tokenizer cannot be served: {what}", field=_FIELD, value=value,
                     remedy="name a function that runs it in spec.interface.pythonSteps, or leave the input out and "
                            "let clients send token ids")
