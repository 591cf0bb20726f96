"""Other weights of the same function: what differs is the order in which floating-point numbers are added."""

from __future__ import annotations

import numpy as np
import torch

from language_gate.sabotage import Change, Weights
from language_gate.shape import Shape


def as_it_is(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """At another number of parallel requests than the reference had."""


def permuted_units(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """Hidden units of every feed-forward layer in another order."""
    for layer in range(shape.layers):
        at = f"model.layers.{layer}.mlp."
        order = torch.from_numpy(rng.permutation(weights[f"{at}up_proj.weight"].shape[0]))
        for name in ("gate_proj", "up_proj"):
            weights[f"{at}{name}.weight"] = weights[f"{at}{name}.weight"][order]
        weights[f"{at}down_proj.weight"] = weights[f"{at}down_proj.weight"][:, order]


def permuted_groups(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """Groups of heads in another order, in every layer."""
    together = shape.heads // shape.groups * shape.width
    for layer in range(shape.layers):
        at, order = f"model.layers.{layer}.self_attn.", torch.from_numpy(rng.permutation(shape.groups))
        for name, rows in (("q_proj", together), ("k_proj", shape.width), ("v_proj", shape.width)):
            split = weights[f"{at}{name}.weight"].unflatten(0, (shape.groups, rows))
            weights[f"{at}{name}.weight"] = split[order].flatten(0, 1)
        split = weights[f"{at}o_proj.weight"].unflatten(1, (shape.groups, together))
        weights[f"{at}o_proj.weight"] = split[:, order].flatten(1, 2)


def moved_scales(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """A power of two from one matrix of each feed-forward layer into the next."""
    for layer in range(shape.layers):
        at, factor = f"model.layers.{layer}.mlp.", 2.0 ** int(rng.integers(-3, 4))
        weights[f"{at}up_proj.weight"] = weights[f"{at}up_proj.weight"] * factor
        weights[f"{at}down_proj.weight"] = weights[f"{at}down_proj.weight"] / factor


def folded_norms(weights: Weights, shape: Shape, rng: np.random.Generator) -> None:
    """The weights of every norm in the matrices behind it, in powers of two alone."""
    behind = {"input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
              "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj")}
    for layer in range(shape.layers):
        at = f"model.layers.{layer}."
        for norm, names in behind.items():
            channels = weights[f"{at}{norm}.weight"].shape[0]
            factors = torch.from_numpy(2.0 ** rng.integers(-2, 3, channels)).to(weights[f"{at}{norm}.weight"].dtype)
            weights[f"{at}{norm}.weight"] = weights[f"{at}{norm}.weight"] * factors
            for name in names:
                weights[f"{at}{name}.weight"] = weights[f"{at}{name}.weight"] / factors


SOUND: tuple[Change, ...] = (as_it_is, permuted_units, permuted_groups, moved_scales, folded_norms)
