"""A causal language model as a Hugging Face folder, told by its content. Nothing of it is run: no code beside it, and
its chat template is only parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginewright_builder.contract import quoted
from enginewright_builder.errors import UserError
from enginewright_builder.sources.formats import (
    PICKLE_REMEDY,
    PICKLE_SUFFIXES,
    causal_architecture,
    check_config,
    check_weight_index,
    is_pickle,
    read_settings,
)
from enginewright_builder.sources.integrity import check_safetensors

_FIELD = "spec.source.uri"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
_TOKENIZER_CONFIG, _TEMPLATE, _ADAPTER = "tokenizer_config.json", "chat_template.jinja", "adapter_config.json"
_GENERATION = "generation_config.json"


@dataclass(frozen=True, kw_only=True)
class Causal:
    """``context`` is how many tokens the model was made for, 0 where it does not say; ``quantised`` the method of a
    checkpoint that is quantised already; ``chat`` whether it has a template for messages. ``dtype`` is that of its
    weights, empty where it does not say; ``heads`` are those of attention, and ``cached`` the numbers that a cache
    holds of one token, both 0 where unknown. ``ends`` are the tokens that end a text, empty where it does not say:
    then the tokeniser's own does."""

    path: Path
    architecture: str
    vocabulary: int
    context: int
    quantised: str
    chat: bool
    dtype: str = ""
    heads: int = 0
    cached: int = 0
    ends: frozenset[int] = frozenset()


def locate_causal(path: Path) -> Causal:
    """Raises :class:`UserError` ``FormatUnknown``, ``PickleRefused``, ``SourceCorrupt``, or ``UnsupportedModel`` where
    it is no causal model, an adapter, or needs code of its own."""
    if (path / _ADAPTER).is_file():
        raise _unsupported(path, f"the folder is an adapter ({_ADAPTER}), not a model",
                           "merge it into its base model (merge_and_unload of PEFT) and give that folder")
    if not (path / "config.json").is_file():
        raise UserError("FormatUnknown", "the source has no config.json, so it is no Hugging Face folder of a language "
                        "model", field=_FIELD, value=path, remedy="give the folder that save_pretrained writes")
    config = _config(path)
    _check_weights(path)
    architecture = _architecture(path, config)
    settings = _tokenizer(path)
    quantised = config.get("quantization_config")
    return Causal(path=path, architecture=architecture, vocabulary=_number(path, config, "vocab_size"),
                  context=_number(path, config, "max_position_embeddings"),
                  quantised=str(quantised.get("quant_method", "unknown")) if isinstance(quantised, dict) else "",
                  chat=_chat(path, settings), dtype=str(config.get("dtype") or config.get("torch_dtype") or ""),
                  heads=_count(config, "num_attention_heads", "n_head"), cached=_cached(config),
                  ends=_ends(path, config))


def weight_bytes(folder: Path) -> int:
    """Of the files that hold them."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _cached(config: Mapping[str, Any]) -> int:
    """A key and a value of each head that has its own, in each layer."""
    heads = _count(config, "num_attention_heads", "n_head")
    size = _count(config, "head_dim") or _count(config, "hidden_size", "n_embd") // max(1, heads)
    return 2 * _count(config, "num_hidden_layers", "n_layer") * (_count(config, "num_key_value_heads") or heads) * size


def _ends(path: Path, config: Mapping[str, Any]) -> frozenset[int]:
    """As vLLM has them: of the settings for generation, or without those of the model's own."""
    settings = read_settings(path / _GENERATION) if (path / _GENERATION).is_file() else config
    found = settings.get("eos_token_id")
    return frozenset(one for one in (found if isinstance(found, list) else [found])
                     if isinstance(one, int) and not isinstance(one, bool))


def _count(config: Mapping[str, Any], *names: str) -> int:
    """The first of the settings that is a positive number; else 0."""
    found = (config.get(name) for name in names)
    return next((one for one in found if isinstance(one, int) and not isinstance(one, bool) and one > 0), 0)


def _config(path: Path) -> dict[str, Any]:
    try:
        return check_config(path / "config.json")
    except UserError as error:
        if error.reason == "UnsupportedModel":
            error.remedy = "give a model of an architecture that vLLM has itself"
        raise


def _check_weights(path: Path) -> None:
    weights = sorted(path.glob("*.safetensors"))
    pickles = [file.name for file in sorted(path.iterdir()) if file.suffix in PICKLE_SUFFIXES and is_pickle(file)]
    if not weights and pickles:
        raise UserError("PickleRefused", f"the folder holds its weights as pickle only ({', '.join(pickles)})",
                        field=_FIELD, value=path, remedy=PICKLE_REMEDY)
    if not weights:
        raise UserError("FormatUnknown", "the folder holds no *.safetensors", field=_FIELD, value=path,
                        remedy="save the model with model.save_pretrained(FOLDER)")
    check_weight_index(path)
    for file in weights:
        check_safetensors(file)


def _architecture(path: Path, config: Mapping[str, Any]) -> str:
    if found := causal_architecture(config):
        return found
    what = ", ".join(config.get("architectures") or ()) or "no architecture"
    raise _unsupported(path, f"the model is no causal language model: config.json names {what}",
                       "give one whose architecture ends in ForCausalLM, or write spec.task: infer (by hand "
                       "--task infer)", value=what)


def _tokenizer(path: Path) -> dict[str, Any]:
    if not any((path / name).is_file() for name in _TOKENIZERS):
        raise UserError("SourceCorrupt", "the folder has no tokeniser", field=_FIELD, value=path,
                        remedy=f"copy {_TOKENIZERS[0]} and {_TOKENIZER_CONFIG} beside config.json")
    settings = read_settings(path / _TOKENIZER_CONFIG) if (path / _TOKENIZER_CONFIG).is_file() else {}
    if settings.get("auto_map"):
        raise _unsupported(path, f"the tokeniser needs Python code of its own (auto_map in {_TOKENIZER_CONFIG}), which "
                           "is never run", "save the tokeniser as tokenizer.json")
    return settings


def _chat(path: Path, settings: Mapping[str, Any]) -> bool:
    """Whether there is a template. Raises ``SourceCorrupt`` for one that cannot be parsed."""
    from jinja2 import TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    file = path / _TEMPLATE
    text = file.read_text(encoding="utf-8") if file.is_file() else settings.get("chat_template")
    if not isinstance(text, str):
        return bool(text)
    try:
        # As transformers makes it.
        ImmutableSandboxedEnvironment(extensions=["jinja2.ext.loopcontrols"]).parse(_plain(text))
    except TemplateSyntaxError as error:
        raise UserError("SourceCorrupt", f"the chat template fails in line {error.lineno}: {error.message}",
                        field=_FIELD, value=_TEMPLATE if file.is_file() else _TOKENIZER_CONFIG,
                        remedy="correct the template, or remove it: texts are then completed as they are") from error
    return True


def _plain(text: str) -> str:
    """Without the marks of transformers' own extension, around what the assistant says."""
    for mark in ("generation", "endgeneration"):
        for opening, closing in (("{%", "%}"), ("{%-", "-%}"), ("{%-", "%}"), ("{%", "-%}")):
            text = text.replace(f"{opening} {mark} {closing}", "")
    return text


def _number(path: Path, config: Mapping[str, Any], name: str) -> int:
    found = config.get(name, 0)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise UserError("SourceCorrupt", f"{name} in config.json is {quoted(found)}, not a number", field=_FIELD,
                        value=path, remedy="copy config.json again")
    return found


def _unsupported(path: Path, problem: str, remedy: str, *, value: object = "") -> UserError:
    return UserError("UnsupportedModel", problem, field=_FIELD, value=value or path, remedy=remedy)
