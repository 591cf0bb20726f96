"""Which inputs make a request as long as it is, and what fills them up: of the interface and what the user says.
Whether padding is harmless is not known here; ``evidence/lengths.py`` tries it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from enginewright_builder.contract import Interface, Padding, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.shapes import UNBOUNDED, shape_text, size_range, takes_batches

_FIELD = "spec.interface.padding"
USUAL_MASK = "attention_mask"
_OF_DECODER = "decoder_"
TOKENS = "input_ids"
# Dimensions of a mask: batch, length.
_MASK = 2
# Of a sound at most: batch, time, and what is heard at each time.
_SOUND = 3


@dataclass(frozen=True, kw_only=True)
class Fill:
    """``values`` has every input that is as long as the mask, with what it is filled up with; ``left``: in front.
    ``low`` and ``high`` are the shortest and the longest request; ``high`` None: unlimited. Not ``marked``: nothing
    tells the model what is padding, and ``mask`` names the input that is as long as the request."""

    mask: str
    values: Mapping[str, float]
    low: int
    high: int | None
    left: bool = False
    marked: bool = True


def fill(interface: Interface, stated: Padding | None, pad_token: int = 0) -> Fill | None:
    """None where nothing is stated and neither a mask nor a sound is known, or all requests are of one length. Raises
    :class:`UserError` ``InterfaceInvalid`` where what is stated does not fit the inputs."""
    inputs = {spec.name: spec for spec in interface.inputs}
    mask = inputs.get(stated.mask if stated else USUAL_MASK)
    problem = _unfit(mask, interface)
    if problem or mask is None:
        if stated is None:
            return _unmarked(interface)
        raise _invalid(f"{stated.mask!r} {problem}", "mask", stated.mask,
                       f"name one of {', '.join(inputs)} that is [batch, free] and has 1 for each position and 0 for "
                       "padding, or remove padding")
    values = {spec.name: _usual(spec, pad_token) for spec in interface.inputs
              if len(spec.shape) >= _MASK and _free(spec.shape[1])}
    for index, one in enumerate(stated.values if stated else ()):
        if one.input not in values or one.input == mask.name:
            raise _invalid(f"{one.input!r} is no input that is filled up", f"values[{index}].input", one.input,
                           f"name one of {', '.join(name for name in values if name != mask.name)}")
        if not _holds(inputs[one.input], one.value):
            raise _invalid(f"{one.input!r} is {inputs[one.input].dtype}, which does not hold {one.value:g}",
                           f"values[{index}].value", one.value, "write a number that the input's type holds")
        values[one.input] = one.value
    low, high = size_range(mask.shape[1])
    return Fill(mask=mask.name, values=values, low=low, high=None if high >= UNBOUNDED else high)


def _unmarked(interface: Interface) -> Fill | None:
    """Sounds and the like: of the inputs one alone has a free size, its second one, and is of fractions. 0 is silence.
    Whole numbers are left out: there is none that stands for nothing."""
    free = [spec for spec in interface.inputs if any(map(_free, spec.shape[1:]))]
    if len(free) != 1 or not takes_batches(interface):
        return None
    spec = free[0]
    if not spec.dtype.startswith("float") or len(spec.shape) > _SOUND or not _free(spec.shape[1]) or any(
            map(_free, spec.shape[2:])):
        return None
    low, high = size_range(spec.shape[1])
    return Fill(mask=spec.name, values={spec.name: 0.0}, low=low, high=None if high >= UNBOUNDED else high,
                marked=False)


def _unfit(mask: TensorSpec | None, interface: Interface) -> str:
    """Why it marks no padding, in words; empty where it does."""
    if mask is None:
        return "is no input of the model"
    if not takes_batches(interface):
        return "cannot mark padding: the model takes each request by itself, as it has no batch in front"
    if len(mask.shape) != _MASK or not _free(mask.shape[1]) or not mask.dtype.startswith(("int", "uint", "bool")):
        return f"is {mask.dtype} {shape_text(mask.shape)}, and a mask is of integers or bool, [batch, free]"
    own = next((spec for spec in interface.inputs if len(spec.shape) >= _MASK and _free(spec.shape[1])
                and _has_its_own_length(spec, mask)), None)
    return "" if own is None else f"does not say how long {own.name!r} is, which has a length of its own"


def _has_its_own_length(spec: TensorSpec, mask: TensorSpec) -> bool:
    """Of two ranges that differ, and of what a decoder is given beside what the encoder reads."""
    size, length = spec.shape[1], mask.shape[1]
    ranges = ".." in str(size) and ".." in str(length)
    return (ranges and size != length) or spec.name.startswith(_OF_DECODER) != mask.name.startswith(_OF_DECODER)


def _usual(spec: TensorSpec, pad_token: int) -> float:
    return float(pad_token) if spec.name == TOKENS else 0.0


def _free(size: int | str) -> bool:
    low, high = size_range(size)
    return low != high


def _holds(spec: TensorSpec, value: float) -> bool:
    if spec.dtype.startswith("float"):
        return True
    return float(value).is_integer() and (value >= 0 or spec.dtype.startswith("int"))


def _invalid(message: str, field: str, value: object, remedy: str) -> UserError:
    return UserError("InterfaceInvalid", message, field=f"{_FIELD}.{field}", value=value, remedy=remedy)
