"""MaxPool behind Pad, as the specification has it. ONNX Runtime makes one operator of the two where Pad writes zeros
(``pad_fusion.cc``), and MaxPool's own padding counts as less than any number: below zero the zeros are the largest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

_INDICES = "enginewright__indices"
# Since this version of ONNX's operators Pad takes its sizes as an input.
_SIZES_ARE_AN_INPUT: Final = 11
Nodes: TypeAlias = "onnx.GraphProto | onnx.FunctionProto"


def keep_zeros(model: onnx.ModelProto) -> bool:
    """Writes each MaxPool behind a Pad so that ONNX Runtime leaves the two apart. ``auto_pad`` in its place says that
    it has no padding of its own. Where it has, or rounds its size up, a Pad of its own repeats the numbers at the
    edges: each window that reaches beyond them holds them already, so that they change no largest one. Where windows
    have gaps or reach further, it gets its second output, which nothing reads, and with which TensorRT leaves the model
    to others. Whether there was any."""
    found = [(scope, opset, pool) for scope, opset in _scopes(model) for pool in _behind_pad(scope.node)]
    for place, (scope, opset, pool) in enumerate(found):
        own = _Own(pool)
        if own and not own.repeats:
            pool.output.append(f"{_INDICES}_{place}")
            continue
        if own:
            own.write(scope, opset, f"enginewright__edges_{place}")
        for name in {"pads", "auto_pad", "ceil_mode"} & {one.name for one in pool.attribute}:
            pool.attribute.remove(next(one for one in pool.attribute if one.name == name))
        pool.attribute.append(helper.make_attribute("auto_pad", "VALID"))
    return bool(found)


def keep_zeros_in(path: Path) -> None:
    """The same in a file."""
    model = onnx.load(str(path))
    if keep_zeros(model):
        onnx.save(model, str(path))


class _Own:
    """The padding of a MaxPool's own, in front of and behind each dimension: none if false. To round a size up is to
    have a stride's more behind, without the last place of it."""

    def __init__(self, pool: onnx.NodeProto) -> None:
        self._pool = pool
        kernel, strides = self._ints("kernel_shape"), self._ints("strides")
        pads = self._ints("pads") or [0] * 2 * len(kernel)
        up = any(one.name == "ceil_mode" and one.i for one in pool.attribute)
        more = [stride - 1 for stride in strides or [1] * len(kernel)] if up else [0] * len(kernel)
        self._before = pads[:len(kernel)]
        self._behind = [pad + one for pad, one in zip(pads[len(kernel):], more, strict=True)]
        gaps = any(size != 1 for size in self._ints("dilations"))
        self.repeats = not gaps and all(before < size and behind < size for before, behind, size
                                        in zip(self._before, self._behind, kernel, strict=True))

    def __bool__(self) -> bool:
        return any((*self._before, *self._behind))

    def _ints(self, name: str) -> list[int]:
        return next((list(one.ints) for one in self._pool.attribute if one.name == name), [])

    def write(self, scope: Nodes, opset: int, name: str) -> None:
        """As a Pad in front of the pool."""
        sizes = [0, 0, *self._before, 0, 0, *self._behind]
        if opset < _SIZES_ARE_AN_INPUT:
            made = [helper.make_node("Pad", [self._pool.input[0]], [name], mode="edge", pads=sizes)]
        else:
            stated = numpy_helper.from_array(np.array(sizes, np.int64))
            made = [helper.make_node("Constant", [], [f"{name}_sizes"], value=stated),
                    helper.make_node("Pad", [self._pool.input[0], f"{name}_sizes"], [name], mode="edge")]
        place = next(number for number, node in enumerate(scope.node) if node is self._pool)
        for node in reversed(made):
            scope.node.insert(place, node)
        self._pool.input[0] = name


def _scopes(model: onnx.ModelProto) -> Iterator[tuple[Nodes, int]]:
    """The graph, each graph within it, and functions, with the version of their operators."""
    waiting: list[tuple[Nodes, int]] = [(model.graph, _opset(model.opset_import)),
                                        *((one, _opset(one.opset_import)) for one in model.functions)]
    while waiting:
        scope, opset = waiting.pop()
        yield scope, opset
        waiting += [(inner, opset) for node in scope.node for one in node.attribute for inner in (one.g, *one.graphs)]


def _opset(imports: Iterable[onnx.OperatorSetIdProto]) -> int:
    return max((one.version for one in imports if one.domain in ("", "ai.onnx")), default=1)


def _behind_pad(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Those that ONNX Runtime may join with a Pad, also across a Cast."""
    made = {node.output[0]: node for node in nodes if node.op_type in ("Pad", "Cast")}
    for pool in nodes:
        if pool.op_type != "MaxPool" or len(pool.output) > 1 or _pads_itself(pool):
            continue
        before = made.get(pool.input[0])
        if before is not None and before.op_type == "Cast":
            before = made.get(before.input[0])
        if before is not None and before.op_type == "Pad":
            yield pool


def _pads_itself(pool: onnx.NodeProto) -> bool:
    """By a rule of its own, for which ONNX Runtime leaves it alone."""
    return any(one.name == "auto_pad" and one.s not in (b"", b"NOTSET") for one in pool.attribute)
