"""Made-up requests in the Open Inference Protocol (V2) and what the answers of two servers have in common.

Inputs are made from what the server says of itself (``GET /v2/models/NAME``): small numbers that any vocabulary has,
the same for the same seed. Tensors travel as bytes behind the JSON (Triton's binary tensor data extension).
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from enginewright_builder.contract import PROBE_REQUEST_ID

# Free dimensions but the first, which is the batch.
FREE_DIMENSION: Final = 8
LARGEST_INPUT: Final = 4 << 20
_PIECE: Final = 1 << 16
_SMALL: Final = ("FP16", "BF16", "FP32", "FP64")
# A server's text in a message: a name that looks like one, and never more. Everything else is named by its place.
_SHOWN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,63}")
MOST_TENSORS: Final = 256
MOST_DIMENSIONS: Final = 32
# Where the server keeps state, a sequence of this one request: by a word, as no client's would be. Other models do not
# look at it.
_SEQUENCE: Final = {"sequence_id": PROBE_REQUEST_ID, "sequence_start": True, "sequence_end": True}
# Of numbers that are classes or tokens, as the accuracy gate takes them to be (ids.py of the builder).
_NAMES: Final = ("BOOL", "INT32", "INT64", "UINT32", "UINT64")
# Between yes and no, of numbers that all lie between 0 and 1.
_THRESHOLD: Final = 0.5
_FORMATS: Final = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i",
    "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d",
}


class ProbeError(Exception):
    """The model cannot be probed, for the reason said."""


@dataclass(frozen=True)
class Request:
    """``body`` starts with ``json_bytes`` bytes of JSON."""

    body: bytes
    json_bytes: int


@dataclass(frozen=True)
class Tensor:
    """``values`` in row-major order; empty for types that are not compared (BYTES). ``names`` says that they number
    classes or tokens, and are no amounts, as far as the type tells."""

    shape: tuple[int, ...]
    values: tuple[float, ...]
    names: bool = False


@dataclass(frozen=True)
class Match:
    """``similarity`` is the least cosine over all outputs of several numbers; None when there are none that can be
    compared. ``single`` has, by name, both numbers of each output that is one: their cosine is 1 or -1, whatever they
    are. ``flaw`` is what is wrong with the second answer whatever the weights; empty when nothing is."""

    similarity: float | None = None
    single: tuple[tuple[str, float, float], ...] = ()
    flaw: str = ""


def make_request(metadata: Mapping[str, Any], seed: int) -> Request:
    """Raises :class:`ProbeError` for a model whose inputs cannot be made up."""
    entries, parts = [], []
    for place, (name, kind, sizes) in enumerate(_inputs(metadata)):
        shape = [_size(where, size) for where, size in enumerate(sizes)]
        part = _bytes(kind, math.prod(shape), f"{seed}/{name}", _shown(name, place))
        parts.append(part)
        entries.append({"name": name, "datatype": kind, "shape": shape, "parameters": {"binary_data_size": len(part)}})
        if sum(map(len, parts)) > LARGEST_INPUT:
            raise ProbeError(f"one input takes more than {LARGEST_INPUT >> 20} MiB")
    if not entries:
        raise ProbeError("the server names no inputs")
    head = json.dumps({"id": PROBE_REQUEST_ID, "inputs": entries,
                       "parameters": {"binary_data_output": True, **_SEQUENCE}}).encode()
    return Request(head + b"".join(parts), len(head))


def make_prompt(seed: int) -> str:
    """For a language model. It begins with what no other seed's begins with, so that no server has it in a cache."""
    return f"{hashlib.sha256(str(seed).encode()).hexdigest()[:16]} {PROBE_REQUEST_ID}"


def _inputs(metadata: Mapping[str, Any]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, type and shape of each. Raises :class:`ProbeError`."""
    try:
        tensors = list(metadata.get("inputs") or ())[: MOST_TENSORS + 1]
        found = [(str(one["name"]), str(one["datatype"]), _shape(one.get("shape") or ())) for one in tensors]
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ProbeError("its metadata is not in Triton's form") from error
    if len(found) > MOST_TENSORS:
        raise ProbeError(f"it names more than {MOST_TENSORS} inputs")
    return found


def _shape(sizes: Any) -> tuple[int, ...]:
    """Raises :class:`ValueError` and :class:`TypeError`."""
    if len(sizes) > MOST_DIMENSIONS:
        raise ValueError(f"more than {MOST_DIMENSIONS} dimensions")
    shape = tuple(map(int, sizes))
    if not all(-1 <= size < 1 << 31 for size in shape):
        raise ValueError("not a size of a tensor")
    return shape


def _shown(name: str, place: int) -> str:
    return name if _SHOWN.fullmatch(name) else f"number {place + 1}"


def _size(place: int, size: int) -> int:
    if size > 0:
        return size
    return 1 if place == 0 else FREE_DIMENSION


def _bytes(kind: str, count: int, seed: str, name: str) -> bytes:
    table = _table(kind)
    if table is None:
        raise ProbeError(f"input {name} has an unknown type")
    if count * max(map(len, table)) > LARGEST_INPUT:
        raise ProbeError(f"input {name} takes more than {LARGEST_INPUT >> 20} MiB")
    noise = hashlib.shake_128(seed.encode()).digest(count)
    # In pieces: the server says how many numbers there are, and other threads must have their turns.
    made = b"".join(b"".join(map(table.__getitem__, noise[at : at + _PIECE])) for at in range(0, count, _PIECE))
    # The first of a mask must not be masked.
    return made if kind in _SMALL or kind == "BYTES" or not count else table[1] + made[len(table[1]) :]


@functools.cache
def _table(kind: str) -> Sequence[bytes] | None:
    """What each byte of noise becomes. 0 and 1 are in every vocabulary, and floating point goes from -1 to 1."""
    if kind == "BYTES":
        return [struct.pack("<I", 1) + str(byte & 1).encode() for byte in range(256)]
    if kind == "BF16":
        return [struct.pack("<f", byte / 127.5 - 1)[2:] for byte in range(256)]
    if kind not in _FORMATS:
        return None
    return [struct.pack(f"<{_FORMATS[kind]}", byte / 127.5 - 1 if kind in _SMALL else byte & 1) for byte in range(256)]


def read_answer(body: bytes, json_bytes: int | None) -> dict[str, Tensor]:
    """Outputs by name; ``json_bytes`` as the header ``Inference-Header-Content-Length`` says, None when the body is all
    JSON. Raises :class:`ProbeError`."""
    try:
        head = json.loads(body[:json_bytes] if json_bytes is not None else body)
        place, found = json_bytes or len(body), {}
        for output in head["outputs"]:
            size = (output.get("parameters") or {}).get("binary_data_size")
            kind, shape = output["datatype"], _shape(output["shape"])
            if size is None:
                values = _numbers(output.get("data"))
            elif (size := int(size)) < 0:
                raise ValueError("not a size of an output")
            else:
                values = _values(kind, body[place : place + size])
                place += size
            found[str(output["name"])] = Tensor(shape, values, names=kind in _NAMES)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, struct.error) as error:
        raise ProbeError("its answer cannot be read") from error
    if len(found) > MOST_TENSORS:
        raise ProbeError(f"its answer has more than {MOST_TENSORS} outputs")
    return found


def _numbers(data: object) -> tuple[float, ...]:
    flat = data if isinstance(data, list) else []
    return tuple(float(one) for one in flat if isinstance(one, int | float))


def _values(kind: str, raw: bytes) -> tuple[float, ...]:
    if kind == "BF16":
        return tuple(value for (value,) in struct.iter_unpack("<f", b"".join(
            b"\0\0" + raw[place : place + 2] for place in range(0, len(raw), 2))))
    if kind not in _FORMATS:
        return ()
    form = f"<{_FORMATS[kind]}"
    return tuple(float(value) for (value,) in struct.iter_unpack(form, raw))


def match(first: Mapping[str, Tensor], second: Mapping[str, Tensor], same_model: bool) -> Match:
    """How ``second`` answers beside ``first``. Shapes may differ only between models that are not the same."""
    for place, (name, tensor) in enumerate(first.items()):
        other, shown = second.get(name), _shown(name, place)
        if other is None or other.shape != tensor.shape:
            shape = "is missing" if other is None else f"has shape {list(other.shape)} instead of {list(tensor.shape)}"
            return Match(flaw=f"output {shown} {shape}") if same_model else Match()
        if _spoilt(tensor.values, other.values):
            return Match(flaw=f"output {shown} holds numbers that are not finite")
    pairs = {name: _finite(tensor.values, second[name].values) for name, tensor in first.items()}
    cosines = [_cosine(mine, theirs) for mine, theirs in pairs.values() if len(mine) > 1]
    single = tuple((name, mine[0], theirs[0]) for name, (mine, theirs) in pairs.items()
                   if len(mine) == 1 and not first[name].names)
    return Match(similarity=min(cosines, default=None), single=single)


def similarities(matches: Sequence[Match]) -> tuple[float, ...]:
    """Of those of ``matches``, of one model, that can be compared: the least over their outputs. A single number has no
    direction: as in the accuracy gate it counts by its error, relative to the first answer or, where that is larger, to
    the root of the mean square of all its first answers. An error e, which lies along the answer, counts as the cosine
    of one as large across it, 1 - e² / 2, so that one limit holds for both. Numbers that all lie between 0 and 1, as
    probabilities do, are held against 0.5 at least: made-up inputs may have answers next to 0 alone."""
    numbers: dict[str, list[tuple[float, float]]] = {}
    for name, mine, theirs in (one for match in matches for one in match.single):
        numbers.setdefault(name, []).append((mine, theirs))
    usual = {name: _usual(pairs) for name, pairs in numbers.items()}
    found = ([*([] if one.similarity is None else [one.similarity]),
              *(_alike(mine, theirs, usual[name]) for name, mine, theirs in one.single)] for one in matches)
    return tuple(min(each) for each in found if each)


def _usual(pairs: Sequence[tuple[float, float]]) -> float:
    """What a number is at least held against."""
    largest = max(abs(mine) for mine, _ in pairs)
    level = largest * math.sqrt(sum((mine / largest) ** 2 for mine, _ in pairs) / len(pairs)) if largest else 0.0
    return max(level, _THRESHOLD) if all(0 <= one <= 1 for pair in pairs for one in pair) else level


def _alike(mine: float, theirs: float, usual: float) -> float:
    size = max(abs(mine), usual)
    error = min(2.0, abs(theirs - mine) / size) if size else float(theirs != mine) * 2
    return max(0.0, 1 - error * error / 2)


def _spoilt(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether ``second`` is not finite where ``first`` is."""
    return any(math.isfinite(mine) and not math.isfinite(theirs) for mine, theirs in zip(first, second, strict=False))


def _finite(first: Sequence[float], second: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Without the places where neither is finite, as masked logits are in any engine. Where only ``first`` is not, it
    counts as zero; empty where it is not finite anywhere, so that there is nothing to hold ``second`` against."""
    if not any(map(math.isfinite, first)):
        return (), ()
    kept = [(mine, theirs) for mine, theirs in zip(first, second, strict=False) if math.isfinite(theirs)]
    return tuple(mine if math.isfinite(mine) else 0.0 for mine, _ in kept), tuple(theirs for _, theirs in kept)


def _cosine(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    if first == second:
        return 1.0
    scale = max(map(abs, (*first, *second)))
    mine, theirs = [value / scale for value in first], [value / scale for value in second]
    size = math.hypot(*mine) * math.hypot(*theirs)
    return sum(map(float.__mul__, mine, theirs)) / size if size else 0.0
