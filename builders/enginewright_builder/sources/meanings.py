"""What a source says its answers mean: names of classes, and tokens of speech. Files beside the model, of which none
needs to be there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enginewright_builder.foreign_json import parsed
from enginewright_builder.sources.formats import MOST_SETTINGS

CONFIG, VOCABULARY, TOKENIZER = "config.json", "vocab.json", "tokenizer_config.json"


def class_names(source: Path) -> dict[str, int]:
    """Class by its name, as ``label2id`` or ``id2label`` of ``config.json`` has it; empty where it has neither."""
    config = _read(source, CONFIG)
    by_name, by_number = config.get("label2id"), config.get("id2label")
    if isinstance(by_name, Mapping) and by_name:
        return {str(name): number for name, number in by_name.items() if isinstance(number, int)}
    if isinstance(by_number, Mapping):
        return {str(name): int(number) for number, name in by_number.items() if str(number).isdecimal()}
    return {}


def speech_tokens(source: Path) -> tuple[dict[str, int], str, str]:
    """``vocab.json``, and which of its tokens is the blank and which stands between words; the first is empty where
    there is none."""
    settings = _read(source, TOKENIZER)
    found = {str(token): number for token, number in _read(source, VOCABULARY).items() if isinstance(number, int)}
    blank, space = settings.get("pad_token"), settings.get("word_delimiter_token")
    return found, blank if isinstance(blank, str) else "<pad>", space if isinstance(space, str) else "|"


def _read(source: Path, name: str) -> Mapping[str, Any]:
    path = (source if source.is_dir() else source.parent) / name
    if not path.is_file() or path.stat().st_size > MOST_SETTINGS:
        return {}
    try:
        found = parsed(path.read_bytes())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
