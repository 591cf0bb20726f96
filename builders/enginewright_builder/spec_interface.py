"""``spec.interface`` as users write it, for the command that has no operator to read it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from enginewright_builder.contract import ContractError, Interface, dumps, load, quoted
from enginewright_builder.padding import USUAL_MASK

Fields = dict[str, Any]


def read_interface(text: str) -> Interface:
    """Of JSON with the fields of ``spec.interface``, or with the contract's, which the command in a build report has.
    Raises :class:`ContractError`."""
    try:
        written = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_object(str(error)) from error
    if not isinstance(written, dict):
        raise _no_object(f"got {quoted(written)}")
    return load(Interface, dumps(_contract(written)))


def _no_object(why: str) -> ContractError:
    return ContractError(f"--interface: not a JSON object: {why}; write spec.interface of an OptimisedModel, such as "
                         '{"inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 16]}]}')


def _contract(value: Any, name: str = "") -> Any:
    """``value`` of field ``name`` in the contract's words. Most of what is wrong with it is left for ``load``."""
    if isinstance(value, list):
        return [_contract(item, name) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {(own := _snake(key)): _contract(item, own) for key, item in value.items()}
    return _FORMS[name](fields) if name in _FORMS else fields


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def _normalise(fields: Fields) -> Fields:
    return {"scale": 1 / 255, "mean": [0.0], "std": [1.0], **fields}


def _preprocess(fields: Fields) -> Fields:
    size, crop = fields.pop("size", {}), fields.pop("crop_size", {})
    if not (isinstance(size, dict) and isinstance(crop, dict)):
        raise ContractError(f"--interface: preprocess: got size {quoted(size)} and cropSize {quoted(crop)}, expected "
                            'objects such as {"height": 224, "width": 224}')
    return {**fields, **size, **{f"crop_{side}": pixels for side, pixels in crop.items()}}


def _step(fields: Fields) -> Fields:
    return {"mask": USUAL_MASK, **fields} if fields.get("function") == "meanPooling" else fields


def _padding(fields: Fields) -> Fields:
    return {"mask": USUAL_MASK, **fields}


def _sequence_batching(fields: Fields) -> Fields:
    return {key.replace("_microseconds", "_us"): value for key, value in fields.items()}


_FORMS: Mapping[str, Callable[[Fields], Fields]] = {
    "normalise": _normalise, "preprocess": _preprocess, "postprocess": _step, "padding": _padding,
    "sequence_batching": _sequence_batching,
}
