"""Linear layers whose products are FP8 on the GPU's tensor cores, each token with a scale of its own.

Weights are quantised once, a scale for each output feature; activations as they come, a scale for each row: so no
calibration data is needed, and one large value spoils one row alone. The compiler joins the scaling with the
normalisation or activation before it. Everything else stays in BF16, the one type that row-wise products return
(``torch._scaled_mm``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

import torch
from torch import nn

# The type that a model with such layers computes in otherwise.
WITHIN = torch.bfloat16
# From which compute capability on the tensor cores multiply FP8 (CUDA's table of features by capability).
CAPABILITY = (8, 9)
# The largest finite value of E4M3 (Micikevicius et al., FP8 formats for deep learning, 2022, table 1).
_LARGEST = 448.0
# Rows of zeros have no scale.
_LEAST = 1e-12
# cuBLAS and CUTLASS take FP8 matrices whose sizes are multiples of 16.
_MULTIPLE = 16
# Narrower layers spend more on scaling than the product saves.
_LEAST_FEATURES = 256


class Fp8Linear(nn.Module):
    """A linear layer for inputs ``(…, in_features)`` in BF16, from its ``(out_features, in_features)`` weight."""

    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        kept, scale = quantised(weight.detach().float())
        self.register_buffer("weight", kept)
        self.register_buffer("scale", scale.t().contiguous())
        self.register_buffer("bias", bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        rows, scale = quantised(inputs.reshape(-1, inputs.shape[-1]).float())
        products = torch._scaled_mm(rows, self.weight.t(), scale_a=scale, scale_b=self.scale,
                                    out_dtype=inputs.dtype, use_fast_accum=True)
        if self.bias is not None:
            products = products + self.bias
        return products.reshape(*inputs.shape[:-1], products.shape[-1])


def quantised(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3 of ``rows / scale``, and the scales, ``(len(rows), 1)`` in FP32."""
    scale = rows.abs().amax(dim=-1, keepdim=True).clamp(min=_LEAST) / _LARGEST
    return (rows / scale).clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn), scale


def share(module: nn.Module) -> float:
    """Of all parameters, the part that lies in layers whose products would be FP8."""
    layers = [part.weight for part in module.modules() if _is_layer(part)]
    traced = [weight for part in module.modules() if isinstance(part, torch.fx.GraphModule)
              for _, weight, _ in _traced(part)]
    every = sum(parameter.numel() for parameter in module.parameters())
    return sum(weight.numel() for weight in (*layers, *traced)) / max(1, every)


def with_fp8(module: nn.Module) -> nn.Module:
    """``module``, which is changed, with those layers replaced, in code as in traced graphs."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if _is_layer(child):
                setattr(parent, name, Fp8Linear(child.weight, child.bias))
        if isinstance(parent, torch.fx.GraphModule):
            _replace(parent)
    return module


def _is_layer(part: nn.Module) -> TypeGuard[nn.Linear]:
    return type(part) is nn.Linear and _worth_it(part.weight)


def _worth_it(weight: torch.Tensor) -> bool:
    return min(weight.shape) >= _LEAST_FEATURES and not any(size % _MULTIPLE for size in weight.shape)


def _traced(part: torch.fx.GraphModule) -> Iterator[tuple[torch.fx.Node, torch.Tensor, torch.Tensor | None]]:
    """Linear products of a traced graph, with their weight and bias."""
    for node in list(part.graph.nodes):
        if node.target is torch.ops.aten.linear.default:
            weight, *rest = (_attribute(part, one) for one in node.args[1:])
            if weight is not None and _worth_it(weight) and None not in rest:
                yield node, weight, rest[0] if rest else None


def _attribute(part: torch.fx.GraphModule, node: object) -> torch.Tensor | None:
    if not isinstance(node, torch.fx.Node) or node.op != "get_attr":
        return None
    owner, _, name = str(node.target).rpartition(".")
    value = getattr(part.get_submodule(owner), name)
    return value if isinstance(value, torch.Tensor) else None


def _replace(part: torch.fx.GraphModule) -> None:
    for index, (node, weight, bias) in enumerate(_traced(part)):
        name = f"fp8_{index}"
        part.add_submodule(name, Fp8Linear(weight, bias))
        with part.graph.inserting_before(node):
            layer = part.graph.call_module(name, (node.args[0],))
        node.replace_all_uses_with(layer)
        part.graph.erase_node(node)
    part.graph.eliminate_dead_code()
    part.recompile()
