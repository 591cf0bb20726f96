"""What TensorRT really built: the types that an engine's layers compute in, by its inspector."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

# As the inspector of TensorRT 10 ("Half", "Row major linear FP16 format") and of 11 ("FP16") write them.
_TYPES = (
    ("bf16", re.compile(r"\b(bf16|bfloat16|bfloat)\b")),
    ("fp16", re.compile(r"\b(fp16|float16|half)\b")),
    ("fp8", re.compile(r"\b(fp8|float8\w*)\b")),
    ("int8", re.compile(r"\bint8\b")),
    ("fp32", re.compile(r"\b(fp32|float32|float)\b")),
)
_KEYS = ("Format/Datatype", "Datatype", "DataType", "Format")
# An engine of fewer layers may be one fused region, whose inside the inspector does not show.
_OPAQUE = 3


def layer_types(report: str) -> dict[str, int]:
    """How many inputs and outputs of layers have each type, from the inspector's JSON of a whole engine."""
    counts: dict[str, int] = {}
    for layer in _layers(report):
        for tensor in (*layer.get("Inputs", ()), *layer.get("Outputs", ())):
            if name := _type(tensor):
                counts[name] = counts.get(name, 0) + 1
    return counts


def silently_precise(precision: str, report: str) -> str:
    """Why the engine is not of ``precision`` at all, empty if it is or the inspector shows too little to tell."""
    counts = layer_types(report)
    precision = "fp16" if precision == "int4-weight-only" else precision  # what its products compute in
    if precision in ("fp32", "tf32") or counts.get(precision) or sum(1 for _ in _layers(report)) < _OPAQUE:
        return ""
    if not counts:
        return ""
    shown = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    return f"no layer of the engine computes in {precision} (tensors by type: {shown})"


def _layers(report: str) -> Iterator[Mapping[str, Any]]:
    """Engines built without details list their layers' names alone."""
    for layer in json.loads(report).get("Layers", ()):
        if isinstance(layer, dict):
            yield layer


def _type(tensor: Mapping[str, Any]) -> str:
    text = " ".join(str(tensor[key]) for key in _KEYS if key in tensor).lower()
    return next((name for name, pattern in _TYPES if pattern.search(text)), "")
