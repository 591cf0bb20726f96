"""How every document is written and read: JSON with snake_case keys, read strictly."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from enginewright_builder.contract.yaml_form import KINDS, quoted

CONTRACT_VERSION = 1


class ContractError(ValueError):
    """A document that does not follow the contract; the message names the field and the value."""


_WHERE_ASKED_FOR = ("mirrored", "agreed", "targets", "captured", "captured_since", "captured_until", "capture_digest",
                    "capture_problem")

# Left out of documents while they are empty: these, and fingerprints, are then as they were before the field was known.
_LATE: Mapping[str, tuple[str, ...]] = {
    "TensorSpec": ("normalise", "preprocess", "value"),
    "Interface": ("postprocess", "padding", "sequence_batching", "python_steps"),
    "StateTensor": ("data_file", "begins"),
    "PostprocessStep": ("axis", "k", "detection"), "AccuracyRequest": ("task", "group_by"),
    "BuildRequest": ("generate", "captures"),
    "CandidateSummary": ("task", "tokens"), "Outcome": ("generate", "shard"),
    "EngineSummary": ("task", "groups", "p999_ms", "requests", "mean_ms", "pre_ms", "post_ms"),
    "GenerateSummary": ("work", "checkpoint", "draft"),
    "TokenFigures": ("proposed", "accepted"), "GenerateRequest": ("checkpoints", "drafts"),
    "EngineRequest": ("profile",), "ResolvedSource": ("checkpoint_digests", "draft_digests"),
}


def to_plain(value: Any) -> Any:
    """Dataclasses to JSON values: tuples become lists, None stays, but for fields that came late."""
    if value is None or isinstance(value, str | int | float):
        return value
    kind: Any = type(value)
    if names := _names(kind):
        late = _LATE.get(kind.__name__, ())
        return {name: to_plain(getattr(value, name)) for name in names if name not in late or getattr(value, name)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    """Of a dataclass's fields; none for any other class."""
    return tuple(entry.name for entry in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, no NaN."""
    return _CANONICAL.encode(value)


def dumps(document: Any, indent: int | None = None) -> str:
    return json.dumps(to_plain(document), ensure_ascii=False, allow_nan=False, indent=indent,
                      separators=(",", ":") if indent is None else None)


T = typing.TypeVar("T")


def load(kind: type[T], text: str) -> T:
    """Parses ``text`` into dataclass ``kind``, strictly. Raises :class:`ContractError`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # also for numbers of many digits, and lists within lists
        raise ContractError(f"{kind.__name__}: not JSON: {error}") from error
    version = value.get("version", CONTRACT_VERSION) if isinstance(value, dict) else None
    if version != CONTRACT_VERSION:
        raise ContractError(f"{kind.__name__}.version: got {quoted(version)}, this program speaks {CONTRACT_VERSION}")
    return typing.cast(T, _read(kind, value, kind.__name__))


def _read(kind: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(typing.cast(type, kind), value, path)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(args, value, path)
    if origin is Literal:
        if value not in args:
            raise ContractError(f"{path}: got {quoted(value)}, expected one of {', '.join(map(quoted, args))}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ContractError(f"{path}: expected a list, got {quoted(value)}")
        return tuple(_read(args[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise ContractError(f"{path}: expected an object, got {quoted(value)}")
        return {key: _read(args[1], item, f"{path}.{key}") for key, item in value.items()}
    return _read_scalar(kind, value, path)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """The type of each field of a dataclass. Python evaluates the annotations on each call, which takes longer than to
    read the document."""
    hints = typing.get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in dataclasses.fields(kind)}


def _read_union(args: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in args:
        return None
    errors = []
    for option in args:
        if option is type(None):
            continue
        try:
            return _read(option, value, path)
        except ContractError as error:
            errors.append(str(error))
    raise ContractError(errors[0] if len(errors) == 1 else f"{path}: {quoted(value)} fits none of the allowed types")


def _read_scalar(kind: Any, value: Any, path: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ContractError(f"{path}: expected {KINDS[kind]}, got {quoted(value)}")
    return value


def _read_dataclass(kind: type, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise ContractError(f"{path}: expected an object, got {quoted(value)}")
    known = _hints(kind)
    if unknown := sorted(set(value) - set(known)):
        raise ContractError(f"{path}: unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")
    read = {name: _read(hint, value[name], f"{path}.{name}") for name, hint in known.items() if name in value}
    try:
        return kind(**read)
    except TypeError as error:
        raise ContractError(f"{path}: {error}") from error
