"""Smaller models that the user lists as drafts: each proposes tokens, of which the source's model keeps those that it
would have chosen itself. They are held against the source before a server is started: tokens pass between both by
their numbers, so that one number has to be one token."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from enginewright_builder.contract import BuildRequest, CheckpointRequest
from enginewright_builder.errors import UserError, brief
from enginewright_builder.generate.listed import Found, Listing
from enginewright_builder.sources import places
from enginewright_builder.sources.causal import Causal, weight_bytes

MOST = 4
_TOKENIZER = "tokenizer.json"
_OTHERS = ("tokenizer.model", "vocab.json", "tekken.json")


def resolve_drafts(request: BuildRequest, source: Causal, scratch: Path) -> Mapping[str, Found]:
    """Raises as :meth:`Listing.resolve` does, and :class:`UserError` ``DraftMismatch``."""
    assert request.generate is not None

    def check(model: Causal, one: CheckpointRequest, field: str) -> None:
        if problem := _problem(model, source, field):
            raise UserError("DraftMismatch", f"draft {one.name} cannot propose tokens to the source: {problem}",
                            field=field, value=one.uri,
                            remedy="give a smaller model of the same family, with the same tokeniser, or remove it")

    return Listing(field="spec.engine.drafts", word="draft", most=MOST, such_as="small", place=places.DRAFTS,
                   check=check).resolve(request, request.generate.drafts, scratch)


def _problem(model: Causal, source: Causal, field: str) -> str:
    """Why it cannot be a draft of ``source``; empty if it can. A context that is shorter stands in no way: vLLM goes on
    without proposals where a text is longer."""
    if model.vocabulary != source.vocabulary:
        return f"its vocabulary has {model.vocabulary} tokens, and the source's {source.vocabulary}"
    if problem := _other_tokens(model.path, source.path, field):
        return problem
    size, of_source = weight_bytes(model.path), weight_bytes(source.path)
    if size >= of_source:
        return (f"its weights have {size:,} bytes and the source's {of_source:,}, so that a token takes it no less "
                "time")
    return ""


def _other_tokens(folder: Path, source: Path, field: str) -> str:
    """How its tokeniser is another; empty where it is not. Tokens that only one of them names may differ: families
    add some in later models."""
    if (folder / _TOKENIZER).is_file() and (source / _TOKENIZER).is_file():
        own, others = _tokens(folder, field), _tokens(source, "spec.source.uri")
        other = next((number for number in sorted(own) if others.get(number, own[number]) != own[number]), None)
        return "" if other is None else (f"its tokeniser differs: token {other} is {own[other]!r}, and "
                                         f"{others[other]!r} of the source")
    for name in _OTHERS:
        if (folder / name).is_file() and (source / name).is_file():
            same = (folder / name).read_bytes() == (source / name).read_bytes()
            return "" if same else f"its tokeniser differs: {name} differs from the source's"
    return f"its tokeniser cannot be compared with the source's: save both as {_TOKENIZER}"


def _tokens(folder: Path, field: str) -> dict[int, str]:
    """By their numbers. Raises :class:`UserError` ``SourceCorrupt``."""
    from tokenizers import Tokenizer

    try:
        found = Tokenizer.from_file(str(folder / _TOKENIZER)).get_vocab(with_added_tokens=True)
    except Exception as error:  # of the library, which has no class of its own
        raise UserError("SourceCorrupt", f"{_TOKENIZER} cannot be read: {brief(error)}", field=field, value=folder,
                        remedy="save it again with tokenizer.save_pretrained(FOLDER)") from error
    return {number: token for token, number in found.items()}
