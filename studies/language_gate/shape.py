"""The parts of a Llama, and the names of its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """``groups`` of heads share keys and values; ``width`` is of a head."""

    layers: int
    heads: int
    groups: int
    width: int

    @classmethod
    def of(cls, model: Path) -> Shape:
        config = json.loads((model / "config.json").read_text())
        return cls(layers=config["num_hidden_layers"], heads=config["num_attention_heads"],
                   groups=config["num_key_value_heads"], width=config["head_dim"])

    def matrices(self, kind: str = "") -> list[str]:
        """Names of all, or of one ``kind`` in all layers."""
        return [f"model.layers.{layer}.{'mlp' if one in MATRICES[4:] else 'self_attn'}.{one}.weight"
                for layer in range(self.layers) for one in MATRICES if kind in ("", one)]

    def matrix(self, rng: np.random.Generator) -> str:
        names = self.matrices()
        return names[int(rng.integers(len(names)))]
