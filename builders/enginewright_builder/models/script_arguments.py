"""What TorchScript's ``forward`` takes its arguments as, and which of the stated inputs each is made of: a tensor or a
number of one, a list, tuple or dict of tensors of those that are called ``argument.0`` or ``argument.key``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from enginewright_builder.errors import UserError
from enginewright_builder.sources.torchscript import DICT, LIST, NUMBERS, TENSOR, TENSORS, input_examples

_TUPLE = re.compile(r"Tuple\[Tensor(, Tensor)*\]")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """``numbers`` are inputs that the model takes as numbers of Python's; ``structure`` is what it takes all of them
    in, None for each as it is. ``plain``: it takes tensors and answers them, or a tuple of them, which exporters
    know."""

    numbers: frozenset[str]
    structure: pytree.TreeSpec | None
    plain: bool


def arguments_of(module: torch.jit.ScriptModule, names: Sequence[str]) -> Arguments:
    """``names`` are the stated inputs, in order; arguments behind the last may be left out. Raises :class:`UserError`
    ``InterfaceInvalid`` for names that do not fit, ``UnsupportedModel`` for what no tensors make."""
    schema = module.forward.schema  # type: ignore[attr-defined]
    left, taken, numbers = list(names), [], set[str]()
    arguments = [(str(one.name), str(one.type)) for one in schema.arguments[1:]]
    for name, kind in arguments:
        if not left:
            break
        if kind in NUMBERS:
            numbers.add(left[0])
        elif kind not in TENSORS:
            taken.append(_gathered(name, kind, left))
            continue
        taken.append(left.pop(0))
    if left:
        raise UserError("InterfaceInvalid", f"the model takes {len(arguments)} inputs, {len(names)} are named",
                        field="spec.interface.inputs", value=len(names),
                        remedy=f"name {', '.join(input_names(module))}, in this order")
    apart = all(isinstance(one, str) for one in taken)
    returned = [str(one.type) for one in schema.returns]
    plain = len(taken) == len(arguments) and all(kind == TENSOR for _, kind in arguments) and all(
        kind == TENSOR or _TUPLE.fullmatch(kind) for kind in returned)
    return Arguments(numbers=frozenset(numbers), plain=plain,
                     structure=None if apart else pytree.tree_structure((tuple(taken), {})))


def input_names(module: torch.jit.ScriptModule) -> list[str]:
    """As inputs may be called, with one tensor for each list, tuple or dict of them."""
    return [input_examples(str(one.name), str(one.type))[0] for one in
            module.forward.schema.arguments[1:]]  # type: ignore[attr-defined]


def _gathered(argument: str, kind: str, left: list[str]) -> Any:
    """Takes the inputs of one argument off the front of ``left``."""
    if kind not in (LIST, DICT) and not _TUPLE.fullmatch(kind):
        raise UserError("UnsupportedModel", f"the model takes {argument!r} as {kind}, and a request holds tensors",
                        field="spec.source.uri", value=f"{argument}: {kind}",
                        remedy="let its forward take tensors, or lists, tuples or dicts of tensors")
    count = next((place for place, name in enumerate(left) if not name.startswith(f"{argument}.")), len(left))
    keys = [name.removeprefix(f"{argument}.") for name in left[:count]]
    wanted = kind.count(TENSOR) if kind.startswith("Tuple") else max(1, count)
    if not keys or (kind != DICT and keys != [str(place) for place in range(wanted)]):
        raise UserError("InterfaceInvalid", f"the model takes {argument!r} as {kind}, of which each tensor is an input",
                        field="spec.interface.inputs", value=", ".join(left[:max(1, count)]),
                        remedy=f"name the tensors {' and '.join(input_examples(argument, kind))}")
    del left[:count]
    if kind == DICT:
        return dict.fromkeys(keys)
    return keys if kind == LIST else tuple(keys)
