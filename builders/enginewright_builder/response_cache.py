"""The model that a replica with a response cache shows to clients: an ensemble of one step, the engine.

Triton 2.51 looks an answer up by the model and the bytes of its inputs alone: neither by their shapes nor by the
outputs that a request asks for. It also keeps the error of a model in its Python backend, as an answer without outputs.
Of an ensemble it keeps no error; and the engine behind it has a name of its own, at which nothing is cached: probes ask
it there (docs/adr/0045-response-cache.md). Standard library only, as what checks engines is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from enginewright_builder.queue_policy import UnreadableConfigError

# The folder that the server mounts as a model.
FRONT = "front"
_FIELD = re.compile(r'  (name|data_type|dims): ("(?:[^"\\]|\\.)*"|[-\w]+)\n')


class UncacheableError(ValueError):
    """Requests with other answers could have the same key; the message says which, and what to do."""


@dataclass(frozen=True, kw_only=True)
class _Tensor:
    """``name`` in quotes, as text format writes it."""

    name: str
    free: int
    text: str


def front(config: str, computed: str) -> str:
    """The ``config.pbtxt`` of a model that answers as the one of ``config`` does, which is served as ``computed``, and
    keeps the answers. Raises :class:`UnreadableConfigError`, and :class:`UncacheableError` where the bytes of a request
    do not say which answer it is to get."""
    lines = config.splitlines(keepends=True)
    sizes = [line for line in lines if line.startswith("max_batch_size:")]
    inputs, outputs = _tensors(lines, "input"), _tensors(lines, "output")
    if len(sizes) != 1 or not inputs or not outputs:
        raise UnreadableConfigError("config.pbtxt is not as the builder writes it")
    _check(inputs, outputs, batched=int(sizes[0].partition(":")[2]) > 1)
    maps = [*(("input_map", one.name) for one in inputs), *(("output_map", one.name) for one in outputs)]
    return "".join((
        'platform: "ensemble"\n', *sizes, *(one.text for one in (*inputs, *outputs)),
        "ensemble_scheduling {\n  step {\n", f'    model_name: "{computed}"\n    model_version: -1\n',
        *(f'    {kind} {{\n      key: {name}\n      value: {name}\n    }}\n' for kind, name in maps),
        "  }\n}\nresponse_cache {\n  enable: true\n}\n"))


def _tensors(lines: Sequence[str], kind: str) -> list[_Tensor]:
    """Of all blocks ``kind``, as clients see them: what else the engine does with them is its own."""
    found = []
    for at in (at for at, line in enumerate(lines) if line == f"{kind} {{\n"):
        block = lines[at:lines.index("}\n", at) + 1]
        fields = [match.groups() for line in block if (match := _FIELD.fullmatch(line))]
        names = [value for field, value in fields if field == "name"]
        text = "".join(f"  {field}: {value}\n" for field, value in fields)
        found.append(_Tensor(name="".join(names), free=fields.count(("dims", "-1")), text=f"{kind} {{\n{text}}}\n"))
    return found


def _check(inputs: Sequence[_Tensor], outputs: Sequence[_Tensor], *, batched: bool) -> None:
    """So many bytes are one shape if one size alone is free. With batches that is the batch, unless an input without
    another free size tells it. Raises :class:`UncacheableError`."""
    if len(outputs) > 1:
        names = ", ".join(one.name.strip('"') for one in outputs)
        raise UncacheableError(
            f"does not work for this engine, which has {len(outputs)} outputs ({names}): Triton's cache does not look "
            "at which of them a request asks for, and would answer with those of another one. Remove it, or serve a "
            "model with one output")
    batch_known = not batched or any(one.free == 0 for one in inputs)
    for one in inputs:
        if one.free > (1 if batch_known else 0):
            name, sizes = one.name.strip('"'), one.free + (0 if batch_known else 1)
            raise UncacheableError(
                f"does not work for this engine, whose input {name} has {sizes} sizes that requests choose: Triton's "
                "cache does not look at shapes, and would answer with that of another shape of the same bytes. Remove "
                "it, or fix sizes in spec.interface.inputs; of texts (preprocess: {fromSource: true}) requests choose "
                "one size")
