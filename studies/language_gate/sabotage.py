"""What goes wrong when a checkpoint is quantised, converted or copied, done to the weights of a Llama on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch

from language_gate.shape import MATRICES, Shape

Weights: TypeAlias = dict[str, Any]
Change: TypeAlias = Callable[[Weights, Shape, np.random.Generator], None]


def wrong_scale(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """A matrix dequantised by the scale of another."""
    name = shape.matrix(rng)
    weights[name] = weights[name] * float(rng.choice([0.25, 0.5, 2.0, 4.0]))


def wrong_scales_of_channels(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """Each output channel dequantised by the scale of its neighbour."""
    name = shape.matrix(rng)
    scale = weights[name].float().abs().amax(1, keepdim=True).clamp_min(1e-8)
    weights[name] = (weights[name].float() / scale * scale.roll(1, 0)).to(weights[name].dtype)


def too_few_bits(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """All matrices in 2 or 3 bits, with one scale for each output channel."""
    most = int(rng.choice([1, 3]))
    for name in shape.matrices():
        scale = weights[name].float().abs().amax(1, keepdim=True).clamp_min(1e-8) / most
        weights[name] = ((weights[name].float() / scale).round() * scale).to(weights[name].dtype)


def clipped(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """Calibrated on the bulk of the values: what lies beyond one standard deviation is lost, in every layer."""
    kind = str(rng.choice(MATRICES))
    for name in shape.matrices(kind):
        most = float(weights[name].float().std())
        weights[name] = weights[name].clamp(-most, most)


def swapped_layers(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    one, other = rng.choice(shape.layers, 2, replace=False)
    for name in [name for name in weights if name.startswith(f"model.layers.{one}.")]:
        theirs = name.replace(f"layers.{one}.", f"layers.{other}.")
        weights[name], weights[theirs] = weights[theirs], weights[name]


def repeated_layer(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """A layer that a conversion wrote over its neighbour."""
    layer = int(rng.integers(1, shape.layers))
    for name in [name for name in weights if name.startswith(f"model.layers.{layer}.")]:
        weights[name] = weights[name.replace(f"layers.{layer}.", f"layers.{layer - 1}.")].clone()


def lost_matrix(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """Never written: zeros."""
    name = shape.matrix(rng)
    weights[name] = torch.zeros_like(weights[name])


def shifted_rows(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """Output channels one place on, as after a wrong packing."""
    name = shape.matrix(rng)
    weights[name] = weights[name].roll(1, 0)


def swapped_heads(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """Queries in the order that another layout of heads has, in one layer."""
    name = f"model.layers.{int(rng.integers(shape.layers))}.self_attn.q_proj.weight"
    weights[name] = weights[name].unflatten(0, (shape.heads, shape.width)).flip(0).flatten(0, 1)


def other_rotation(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """Queries and keys laid out for rotary positions of neighbours instead of halves, in all layers."""
    for kind, heads in (("q_proj", shape.heads), ("k_proj", shape.groups)):
        for name in shape.matrices(kind):
            split = weights[name].unflatten(0, (heads, 2, shape.width // 2))
            weights[name] = split.transpose(1, 2).flatten(0, 2)


def wrong_cache(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """What a cache does to keys or values whose scale is wrong, in all layers."""
    factor, kind = float(rng.choice([0.25, 4.0])), str(rng.choice(["k_proj", "v_proj"]))
    for name in shape.matrices(kind):
        weights[name] = weights[name] * factor


def lost_norm(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """A norm's weights at their initial value."""
    names = [name for name in weights if name.endswith("norm.weight")]
    name = names[int(rng.integers(len(names)))]
    weights[name] = torch.ones_like(weights[name])


def shifted_tokens(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """Embeddings of another vocabulary's order."""
    name = "model.embed_tokens.weight"
    weights[name] = weights[name].roll(int(rng.integers(1, 100)), 0)


def noise(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """Half as large as the weights themselves, in one layer."""
    seed = torch.Generator().manual_seed(int(rng.integers(2**31)))
    for name in [name for name in shape.matrices() if f".{int(rng.integers(shape.layers))}." in name]:
        spread = 0.5 * weights[name].float().std()
        added = torch.randn(weights[name].shape, generator=seed) * spread
        weights[name] = (weights[name].float() + added).to(weights[name].dtype)


SABOTAGES: tuple[Change, ...] = (
    wrong_scale, wrong_scales_of_channels, too_few_bits, clipped, swapped_layers, repeated_layer, lost_matrix,
    shifted_rows, swapped_heads, other_rotation, wrong_cache, lost_norm, shifted_tokens, noise)
