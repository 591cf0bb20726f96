"""Sentence embeddings: the pooling and normalisation that the sentence-transformers layout puts after a transformer.

``modules.json`` lists the steps; the folder of the pooling step says how (``pooling_mode_mean_tokens`` and so on, or
``pooling_mode`` in newer files).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from enginewright_builder.errors import UserError
from enginewright_builder.foreign_json import parsed
from enginewright_builder.sources.own_names import escapes_folder

_FIELD = "spec.source.uri"
_MODES = ("mean", "cls", "max", "mean_sqrt_len")
_FLAGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max",
          "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len"}


@dataclass(frozen=True, kw_only=True)
class SentenceModules:
    pooling: str
    normalize: bool


def read_sentence_modules(path: Path) -> SentenceModules | None:
    """None without ``modules.json``. Raises :class:`UserError` ``UnsupportedModel`` for steps that are not known."""
    if not (path / "modules.json").is_file():
        return None
    pooling, normalize = "", False
    modules = _read(path / "modules.json")
    if not isinstance(modules, list) or not all(isinstance(entry, dict) for entry in modules):
        raise _corrupt(path / "modules.json", "it is not a list of steps")
    for entry in modules:
        kind = str(entry.get("type", "")).rsplit(".", 1)[-1]
        if kind == "Pooling":
            step = str(entry.get("path", ""))
            if escapes_folder(step):
                raise _corrupt(path / "modules.json", f"the step in {step[:100]!r} is not a part of the folder")
            pooling = _pooling_mode(_read(path / step / "config.json"))
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise UserError("UnsupportedModel", f"modules.json has a step {kind!r}", field=_FIELD, value=kind,
                            remedy="steps known are Transformer, Pooling and Normalize; export the model to ONNX")
    return SentenceModules(pooling=pooling, normalize=normalize) if pooling else None


def _read(path: Path) -> Any:
    try:
        return parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _corrupt(path, str(error)) from error


def _corrupt(path: Path, what: str) -> UserError:
    return UserError("SourceCorrupt", f"{path.name}: {what}", field=_FIELD, value=path, remedy="copy the folder again")


def _pooling_mode(config: Any) -> str:
    if not isinstance(config, dict):
        config = {}
    modes = [mode for flag, mode in _FLAGS.items() if config.get(flag)]
    stated = config.get("pooling_mode")
    modes = modes or (stated if isinstance(stated, list) else [stated])
    if len(modes) != 1 or modes[0] not in _MODES:
        raise UserError("UnsupportedModel", f"pooling {modes or 'of no kind'} is not supported", field=_FIELD,
                        value=modes, remedy=f"use one of {', '.join(_MODES)}, or export the model to ONNX")
    return str(modes[0])


class SentenceEmbedding(nn.Module):
    """Token embeddings to one vector a text; padding does not count."""

    def __init__(self, model: Any, modules: SentenceModules) -> None:
        super().__init__()
        self.model, self.modules_ = model, modules

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        tokens = self.model(**inputs, return_dict=True).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1).to(tokens.dtype)
        vector = _pool(self.modules_.pooling, tokens, mask)
        return nn.functional.normalize(vector, p=2, dim=1) if self.modules_.normalize else vector


def _pool(mode: str, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if mode == "cls":
        return tokens[:, 0]
    if mode == "max":
        return tokens.masked_fill(mask == 0, torch.finfo(tokens.dtype).min).amax(dim=1)
    count = mask.sum(dim=1).clamp(min=1e-9)
    return (tokens * mask).sum(dim=1) / (count.sqrt() if mode == "mean_sqrt_len" else count)
