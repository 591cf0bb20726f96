"""Prompts as the model reads them, before a server is started: by the tokeniser and the chat template of its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from enginewright_builder.errors import UserError, brief
from enginewright_builder.generate.client import Ask

_DATA = "spec.accuracy.evaluation.uri"


def lengths(folder: Path, asks: Sequence[Ask], context: int) -> list[int]:
    """Tokens of each prompt. Raises :class:`UserError` ``SourceCorrupt`` for a tokeniser that cannot be loaded,
    ``TemplateFailed``, and ``PromptTooLong`` where a prompt and its answer are longer than ``context`` (0: unknown)."""
    tokenizer = _tokenizer(folder)
    found = []
    for number, ask in enumerate(asks, 1):
        length = len(_tokens(tokenizer, ask, number))
        if not length:
            raise UserError("PromptsInvalid", f"prompt {number} has no token", field=_DATA, value=number,
                            remedy="write a text, or remove the line")
        if context and length + ask.max_tokens > context:
            raise UserError("PromptTooLong", f"prompt {number} has {length} tokens, and with an answer of "
                            f"{ask.max_tokens} it is longer than the context of {context}", field=_DATA, value=number,
                            remedy="shorten the prompt, lower its max_tokens, or remove the line" if length < context
                            else "shorten the prompt, or remove the line")
        found.append(length)
    return found


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # any class of the library's, and of those it uses
        raise UserError("SourceCorrupt", f"the tokeniser cannot be loaded: {type(error).__name__}: {brief(error)}",
                        field="spec.source.uri", value=folder,
                        remedy="save it again with tokenizer.save_pretrained(FOLDER)") from error


def _tokens(tokenizer: Any, ask: Ask, number: int) -> Sequence[int]:
    if not ask.chat:
        return list(tokenizer(ask.prompt)["input_ids"])
    try:
        return list(tokenizer.apply_chat_template(list(ask.prompt), add_generation_prompt=True, return_dict=False))
    except Exception as error:  # what a template raises is its author's choice
        raise UserError("TemplateFailed", f"the model's chat template fails for prompt {number}: "
                        f"{type(error).__name__}: {brief(error)}", field=_DATA, value=number,
                        remedy="write roles and contents that the template takes, or give texts (prompt) in place of "
                               "messages") from error
