"""What a drift report holds, as plain data that the build report can carry."""

from __future__ import annotations

from dataclasses import dataclass

# What one retry keeps in higher precision.
WORST_LAYERS = 4
# Below this a layer added nothing that is worth its speed.
_LEAST_ADDED = 1e-4


@dataclass(frozen=True, kw_only=True)
class LayerDrift:
    """``error`` and ``added`` are relative (0.01 is 1 %). ``lowered``: it could be kept from the precision that was
    asked for; what other layers add counts to the last such one before them. ``finite`` is False where the candidate
    answers NaN or infinity and the original does not; the rest is 0 then."""

    node: str
    operator: str
    error: float
    added: float
    lowered: bool = True
    finite: bool = True


@dataclass(frozen=True, kw_only=True)
class DriftReport:
    """Layers in the graph's order. ``unavailable`` says why there are none, empty if there are."""

    layers: tuple[LayerDrift, ...] = ()
    first_not_finite: str = ""
    samples: int = 0
    unavailable: str = ""

    def worst(self, count: int = WORST_LAYERS) -> tuple[LayerDrift, ...]:
        """The first layer that is not finite, then what added most error, among layers of lowered precision; at most
        half of these, or little would be left of the precision that was asked for."""
        broken = [layer for layer in self.layers if not layer.finite and layer.lowered][:1]
        adding = sorted((layer for layer in self.layers if layer.finite and layer.lowered
                         and layer.added >= _LEAST_ADDED), key=lambda layer: -layer.added)
        lowered = sum(layer.lowered for layer in self.layers)
        return tuple([*broken, *adding][:min(count, lowered // 2)])
