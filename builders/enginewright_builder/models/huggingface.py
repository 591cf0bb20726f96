"""Hugging Face folders (``config.json`` and safetensors), and the sentence-transformers layout around them.

Nothing is downloaded and no code of the model's is run.
"""

from __future__ import annotations

import os

# Before transformers is imported: it reads these once.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from enginewright_builder.contract import Interface, TensorSpec, quoted
from enginewright_builder.errors import BuilderError, UserError, brief, first_line, known_or
from enginewright_builder.models.base import Tokenize
from enginewright_builder.models.folder_tokenizer import FolderTokenizer
from enginewright_builder.models.hf_kinds import (
    Served,
    mask_beside,
    parameters,
    picks_queries,
    sizes_to_observe,
    unsupported,
    ways,
)
from enginewright_builder.models.pooling import SentenceEmbedding, read_sentence_modules
from enginewright_builder.models.synthetic import DEFAULT_VOCABULARY, example_inputs
from enginewright_builder.models.table_rows import TableRows
from enginewright_builder.models.torch_base import TorchModel, observed_outputs, quiet, with_free_sizes
from enginewright_builder.shapes import BATCH, TEXT_INPUTS, checked_batch, shape_text, size_range
from enginewright_builder.sources.formats import check_config, read_settings

_FIELD = "spec.source.uri"
# Outputs that are no answers: caches, per-layer states.
_LEFT_OUT = frozenset({"past_key_values", "hidden_states", "attentions", "cross_attentions", "loss", "router_logits"})
# Of detectors, what their losses take: answers of each layer, and of all places that queries are picked from.
_OF_TRAINING = ("intermediate_", "init_reference_points", "enc_outputs_", "enc_topk_")
# Weights that a base model may lack without its answers being wrong: its pooler, whose output is then left out.
_OPTIONAL_WEIGHTS = ("pooler.",)
DEFAULT_TOKENS = 512
_MASK_NOTE = ("The source's processor makes attention_mask of sounds, and clients send none: write "
              "spec.interface.padding with mask: attention_mask to let them send it, so that sounds of different "
              "length are joined.")
_PLACES = ("the model picks its queries by their scores, so that rows change places where two are close; declare "
           "objectDetection in spec.interface.postprocess, which is compared by boxes, not place by place. Where it is "
           "declared, scores are all alike, as before training")


def load_huggingface(path: Path, interface: Interface | None, device: str = "cpu", mask: str = "") -> TorchModel:
    """``mask``: the input that the user says marks padding. Of sounds the model takes one where the user names it.

    Raises :class:`UserError` ``UnsupportedModel``, ``SourceCorrupt`` or ``InterfaceInvalid``."""
    config = check_config(path / "config.json")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    modules = read_sentence_modules(path)
    model, missing = _load_weights(path, config)
    pooled = not any(name.startswith(_OPTIONAL_WEIGHTS) for name in missing)
    refused: UserError | None = None
    for served in ways(model, interface.inputs if interface else ()):
        tokenize, inputs, notes = _inputs(path, model, served, interface, mask)
        module: nn.Module
        if modules is not None:
            module, names = SentenceEmbedding(served.model, modules), ["sentence_embedding"]
        else:
            wanted = served.outputs or [spec.name for spec in (interface.outputs if interface else ())]
            module, names = _Answers(served.model, pooled, wanted), []
        try:
            observed, rows = _observed(module.eval(), inputs, names, model)
        except UserError as error:
            if error.reason != "UnsupportedModel":
                raise
            refused = error  # of the way that is closest to what the configuration says
            continue
        loaded = TorchModel(module, observed, name=", ".join(filter(None, ("PyTorch eager, FP32", served.part))),
                            keywords=True, tokenize=tokenize, device=device,
                            vocabulary=getattr(_of_text(model.config), "vocab_size", None) or DEFAULT_VOCABULARY,
                            pad_token=getattr(_of_text(model.config), "pad_token_id", None) or 0,
                            end_token=_end_token(model))
        loaded.notes, loaded.table_rows = notes, rows
        if picks_queries(model):
            loaded.if_mismatched = _PLACES
        return loaded
    assert refused is not None  # there is one way at least
    raise refused


def _inputs(path: Path, model: Any, served: Served, interface: Interface | None, mask: str
            ) -> tuple[Tokenize | None, tuple[TensorSpec, ...], tuple[str, ...]]:
    """With what makes them of texts, where a tokenizer makes all of them, and with what the user should know."""
    if served.stated:
        assert interface is not None
        return None, _stated_inputs(path, model, served, interface), ()
    tokenize, texts = (_text_inputs(path, model, _without(interface, served.others)) if served.takes_text
                       else (None, ()))
    others = tuple(_as_stated(spec, interface) for spec in served.others)
    marks = mask_beside(others)
    named = [spec.name for spec in interface.inputs] if interface else []
    masked = marks is not None and marks.name in (mask, *named)
    notes = (_MASK_NOTE,) if marks and not masked and _marks_padding(path) else ()
    return None if others else tokenize, (*texts, *others, *((marks,) if marks and masked else ())), notes


def _stated_inputs(path: Path, model: Any, served: Served, interface: Interface) -> tuple[TensorSpec, ...]:
    """What the user names. Those of texts may be left without a shape: the source says how long they are."""
    bare = [spec.name for spec in interface.inputs if not spec.shape and spec.name in TEXT_INPUTS]
    texts = {spec.name: spec for spec in _token_specs(bare, f"1..{_token_limit(path, model, None)}")}
    return checked_batch(Interface(inputs=tuple(texts.get(spec.name, spec) for spec in interface.inputs))).inputs


def _marks_padding(path: Path) -> bool:
    """Whether the source's own processor makes a mask of sounds."""
    settings = path / "preprocessor_config.json"
    return settings.is_file() and read_settings(settings).get("return_attention_mask") is True


def _without(interface: Interface | None, others: Sequence[TensorSpec]) -> Interface | None:
    """What is stated of texts."""
    names = {spec.name for spec in others}
    return interface and Interface(inputs=tuple(spec for spec in interface.inputs if spec.name not in names))


def _as_stated(own: TensorSpec, interface: Interface | None) -> TensorSpec:
    """With the sizes that the user states: not every configuration says how large images are."""
    for spec in interface.inputs if interface else ():
        if spec.name == own.name and len(spec.shape) == len(own.shape):
            return dataclasses.replace(own, shape=tuple(
                size if isinstance(size, int) else mine for mine, size in zip(own.shape, spec.shape, strict=True)))
    return own


def _of_text(config: Any) -> Any:
    """The part that speaks of texts, in a model of texts and images."""
    return getattr(config, "text_config", None) or config


def _end_token(model: Any) -> int | None:
    """What ends each text, where the configuration says one token."""
    config = _of_text(model.config)
    token, count = getattr(config, "eos_token_id", None), getattr(config, "vocab_size", None) or 0
    return token if isinstance(token, int) and 0 <= token < count else None


def _load_weights(path: Path, config: Mapping[str, Any]) -> tuple[Any, list[str]]:
    architectures = config.get("architectures") or []
    kind: Any = getattr(transformers, architectures[0], None) if architectures else transformers.AutoModel
    # Of the library's names only models: it has programs, too.
    if architectures and not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        raise UserError("UnsupportedModel", f"this builder does not know the architecture {quoted(architectures[0])}",
                        field=_FIELD, value=architectures[0],
                        remedy="export the model with torch.export.save or to ONNX")
    try:
        model, loading = kind.from_pretrained(path, local_files_only=True, trust_remote_code=False,
                                              use_safetensors=True, ignore_mismatched_sizes=True,
                                              dtype=torch.float32, output_loading_info=True)
    except Exception as error:  # configurations and weights fail in as many ways as there are kinds of them
        raise known_or(error, UserError(
            "SourceCorrupt",
            f"the folder cannot be loaded as {getattr(kind, '__name__', kind)}: {brief(error)}",
            field=_FIELD, value=path, remedy="check that config.json belongs to these weights")) from error
    if other := sorted(loading["mismatched_keys"], key=str):
        name, saved, wanted = other[0]
        raise UserError("SourceCorrupt", f"{len(other)} weights have another size than config.json says, such as "
                        f"{name}: {list(saved)}, not {list(wanted)}", field=_FIELD, value=path,
                        remedy="copy the config.json that belongs to these weights")
    missing = sorted(str(name) for name in loading.get("missing_keys", ()))
    if needed := [name for name in missing if not name.startswith(_OPTIONAL_WEIGHTS)]:
        raise UserError("SourceCorrupt", f"{len(needed)} weights are missing, such as {needed[0]}; they would be "
                        f"random",
                        field=_FIELD, value=path, remedy="give the complete weights of this architecture")
    model.config.use_cache = False
    return model.eval(), missing


class _Answers(nn.Module):
    """The tensors a model answers with, by name, without caches and states of single layers."""

    def __init__(self, model: Any, pooled: bool, wanted: Sequence[str] = ()) -> None:
        """``wanted``: these outputs alone, where any are named."""
        super().__init__()
        self.model, self.pooled, self.wanted = model, pooled, tuple(wanted)

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        answers = self.model(**inputs, return_dict=True)
        left_out = _LEFT_OUT if self.pooled else _LEFT_OUT | {"pooler_output"}
        given = _tensors({name: value for name, value in answers.items()
                          if name not in left_out and not name.startswith(_OF_TRAINING)})
        if unknown := [name for name in self.wanted if name not in given]:
            raise UserError("InterfaceInvalid", f"the model has no output {unknown[0]!r}; it gives {', '.join(given)}",
                            field="spec.interface.outputs", value=unknown[0], remedy="name the model's own outputs, or "
                                                                                    "leave outputs out to serve all")
        return {name: given[name] for name in self.wanted} if self.wanted else given


def _tensors(answers: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """By name. Those of tuples (``logits.0``) count where there is no other: beside tensors, tuples hold what single
    layers made."""
    return {name: value for name, value in answers.items() if isinstance(value, torch.Tensor)} or {
        f"{name}.{place}": value for name, values in answers.items() if isinstance(values, tuple)
        for place, value in enumerate(values) if isinstance(value, torch.Tensor)}


def _text_inputs(path: Path, model: Any, interface: Interface | None) -> tuple[Tokenize | None, tuple[TensorSpec, ...]]:
    if not any((path / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt")):
        limit = _token_limit(path, model, None)
        names = _input_names(interface, ["input_ids", "attention_mask"], model)
        return None, _token_specs(names, _length(interface, names, limit))
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # tokenizer files fail in as many ways as there are kinds of them
        raise UserError("SourceCorrupt", f"the tokenizer cannot be loaded: {brief(error, 200)}", field=_FIELD,
                        value=path, remedy="copy all tokenizer files") from error
    limit = _token_limit(path, model, tokenizer)
    names = _input_names(interface, list(tokenizer.model_input_names), model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    length = _length(interface, names, limit)
    return (FolderTokenizer(tokenizer, tuple(names), size_range(length)[1], filled=isinstance(length, int)),
            _token_specs(names, length))


def _input_names(interface: Interface | None, known: list[str], model: Any) -> list[str]:
    if interface is None or not interface.inputs:
        return known
    names = [spec.name for spec in interface.inputs]
    if unknown := [name for name in names if name not in (*known, *parameters(model))]:
        raise UserError("InterfaceInvalid", f"the model has no input {unknown[0]!r}; it takes {', '.join(known)}",
                        field="spec.interface.inputs", value=unknown[0], remedy="name the model's own inputs, or leave "
                                                                               "interface out: the source tells it")
    return names


def _length(interface: Interface | None, names: Sequence[str], limit: int) -> int | str:
    """Of texts, in tokens: what the user states, as far as the source takes it. Raises :class:`UserError`
    ``InterfaceInvalid``."""
    for spec in interface.inputs if interface else ():
        if spec.name in names and len(spec.shape) == 2:
            low, high = size_range(spec.shape[1])
            if low > limit:
                raise UserError("InterfaceInvalid", f"the source takes texts of {limit} tokens at most",
                                field=f"spec.interface.inputs[{spec.name}].shape", value=shape_text(spec.shape),
                                remedy=f"write [batch, {limit}], a smaller number, or a range")
            return low if isinstance(spec.shape[1], int) else f"{low}..{min(high, limit)}"
    return f"1..{limit}"


def _token_specs(names: Sequence[str], length: int | str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, dtype="int64", shape=(BATCH, length)) for name in names)


def _token_limit(path: Path, model: Any, tokenizer: Any) -> int:
    """The smallest of what the weights, the tokenizer and the sentence-transformers settings allow."""
    most = getattr(_of_text(model.config), "max_position_embeddings", None)
    # A table of positions that has a place for padding, as RoBERTa's, is counted from behind that place.
    # I-BERT's is a class of its own.
    behind = [table.padding_idx + 1 for name, table in model.named_modules() if name.endswith("position_embeddings")
              and getattr(table, "padding_idx", None) is not None and len(getattr(table, "weight", ())) == most]
    limits = [most - max(behind, default=0) if isinstance(most, int) else most,
              getattr(tokenizer, "model_max_length", None)]
    settings = path / "sentence_bert_config.json"
    if settings.is_file():
        limits.append(read_settings(settings).get("max_seq_length"))
    # Tokenizers say 1e30 when no limit is set.
    return min((int(limit) for limit in limits if isinstance(limit, int | float) and 1 <= limit < 1_000_000),
               default=DEFAULT_TOKENS)


def _observed(module: nn.Module, inputs: tuple[TensorSpec, ...], names: list[str], model: Any
              ) -> tuple[Interface, dict[str, int]]:
    """The interface with outputs as seen, and rows of the tables that inputs are looked up in: run twice, with two
    sizes of the free dimensions."""
    seen, rows = [], dict[str, int]()
    low = max((size_range(size)[0] for spec in inputs for size in spec.shape[1:] if isinstance(size, str)), default=1)
    for size in sizes_to_observe(low):
        example = example_inputs(Interface(inputs=inputs), 2, size=size, end_token=_end_token(model))
        given = {name: torch.from_numpy(array) for name, array in example.items()}
        try:
            with quiet(), torch.inference_mode(), TableRows(given) as tables:
                value = module(**given)
        except Exception as error:  # the library's models fail in as many ways as there are kinds of them
            raise _unsupported(model, inputs, error) from error
        if not len(value):
            raise unsupported(f"{type(model).__name__} answers no tensor", type(model).__name__, model)
        names = names or list(value)
        seen.append(observed_outputs(value, names, 2))
        rows |= tables.rows
    return Interface(inputs=inputs, outputs=with_free_sizes(*seen)), rows


def _unsupported(model: Any, inputs: Sequence[TensorSpec], error: Exception) -> BuilderError:
    architecture, listed = type(model).__name__, ", ".join(f"{spec.name} {shape_text(spec.shape)}" for spec in inputs)
    return known_or(error, unsupported(f"{architecture} does not answer one call with {listed}: {first_line(error)}",
                                       architecture, model))
