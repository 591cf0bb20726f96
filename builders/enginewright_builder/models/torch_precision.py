"""PyTorch modules in half precision, with the interface of the module as it was."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from enginewright_builder.contract import Interface
from enginewright_builder.errors import UserError

# TF32 changes how products are computed, not what tensors hold: the module stays as it is.
HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}
FULL = ("fp32", "tf32")


class Adapted(nn.Module):
    """The module with positional inputs, a tuple of outputs, and a precision of its own within.

    Floating inputs are cast to ``within`` at entry, and outputs to the types of the interface at exit; ``within`` None
    casts nothing.
    """

    def __init__(self, module: nn.Module, interface: Interface, *, keywords: bool,
                 within: torch.dtype | None = None) -> None:
        super().__init__()
        self.module, self._within = module, within
        self._keywords = [spec.name for spec in interface.inputs] if keywords else None
        self._types = [getattr(torch, spec.dtype) for spec in interface.outputs]

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self._within is not None:
            inputs = tuple(value.to(self._within) if value.is_floating_point() else value for value in inputs)
        outputs = flatten(self.module(**dict(zip(self._keywords, inputs, strict=True))) if self._keywords
                          else self.module(*inputs))
        if self._within is not None:
            outputs = [one.to(kind) for one, kind in zip(outputs, self._types, strict=True)]
        return tuple(outputs)


def flatten(value: Any) -> list[torch.Tensor]:
    """Tensors of a tensor, sequence or mapping, in order. Raises :class:`UserError` ``UnsupportedModel``."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in flatten(item)]
    raise UserError("UnsupportedModel", f"the model returns {type(value).__name__}, not tensors", field="spec.source",
                    remedy="let the model return one tensor, or a tuple or dict of tensors")


def flat_names(value: Any, inputs: Collection[str]) -> list[str]:
    """Of the tensors of :func:`flatten`, in its order: by the keys of a mapping, ``key`` or ``key.0``, else ``output``,
    and ``output_0`` and so on of several. A key that one of the ``inputs`` has is called ``output_key``: a graph gives
    each name once."""
    if isinstance(value, Mapping):
        names = [name for key, item in value.items() for name in _names_below(str(key), item)]
        return [f"output_{name}" if name in inputs else name for name in names]
    count = len(flatten(value))
    return ["output"] if count == 1 else [f"output_{place}" for place in range(count)]


def _names_below(name: str, value: Any) -> list[str]:
    if isinstance(value, torch.Tensor):
        return [name]
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    return [below for key, item in items for below in _names_below(f"{name}.{key}", item)]


def lowered(module: nn.Module, within: torch.dtype) -> nn.Module:
    """A copy with parameters, buffers and constants in ``within``; ``module`` stays as it is.

    In a traced graph FP32 is also written into casts and into tensors made on the way: these become ``within``, and the
    assertions that guard the old types go.
    """
    copied = copy.deepcopy(module).to(within)
    for part in copied.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
                setattr(part, name, value.to(within))
        if isinstance(part, torch.fx.GraphModule):
            _lower_graph(part, within)
    return copied


def _lower_graph(part: torch.fx.GraphModule, within: torch.dtype) -> None:
    def lower(value: Any) -> Any:
        return within if value is torch.float32 else value

    for node in list(part.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            part.graph.erase_node(node)
        else:
            node.args = torch.fx.node.map_aggregate(node.args, lower)
            node.kwargs = torch.fx.node.map_aggregate(node.kwargs, lower)
    part.recompile()


@contextlib.contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Whether cuBLAS and cuDNN may round FP32 products to TF32. PyTorch's defaults: no and yes."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def on_device(call: Callable[..., Any], tensors: Sequence[torch.Tensor], device: str) -> Callable[[], object]:
    """``call`` of tensors that lie on ``device``, which returns when the device has finished."""
    def timed() -> object:
        with torch.inference_mode():
            value = call(*tensors)
        if device != "cpu":
            torch.cuda.synchronize()
        return value

    return timed
