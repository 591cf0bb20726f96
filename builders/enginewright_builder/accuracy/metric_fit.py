"""Does metric ``top1`` fit what the model answers? The resolve step asks where it knows the model's outputs, and the
build again once the source is open."""

from __future__ import annotations

from collections.abc import Iterable

from enginewright_builder.contract import TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.ids import ID_TYPES
from enginewright_builder.shapes import STRING, sample_shape, shape_text, size_range

TOP1 = "top1"
# Dimensions of one sample: positions and the classes of each. With more the classes stand in front, as in
# [classes, height, width].
_POSITIONS = 2


def check_classes_last(metric: str, outputs: Iterable[TensorSpec], *, batched: bool) -> None:
    """Of ``outputs`` with known shapes. ``batched``: these have the batch in front. Raises :class:`UserError`
    ``MetricInvalid``."""
    if metric != TOP1:
        return
    for spec in outputs:
        shape = sample_shape(spec, batched=batched)
        if spec.dtype in ID_TYPES or spec.dtype == STRING or _may_be_last(shape):
            continue
        raise UserError("MetricInvalid", f"{TOP1} compares the largest entry along the last dimension, which of output "
                        f"{spec.name!r}, {shape_text(spec.shape)}, need not be the classes",
                        field="spec.accuracy.metric", value=metric, remedy=_remedy(spec, shape, batched))


def _may_be_last(shape: tuple[int | str, ...]) -> bool:
    """Whether classes do, or there is one number for each position."""
    if len(shape) < _POSITIONS or shape[-1] == 1:
        return True
    low, high = size_range(shape[-1])
    return len(shape) == _POSITIONS and low == high


def _remedy(spec: TensorSpec, shape: tuple[int | str, ...], batched: bool) -> str:
    others = "write metric relative-error or cosine"
    if not batched or shape[0] == 1 or not spec.dtype.startswith("float"):
        return others
    return ("let the engine answer the numbers of classes, which are compared by how many are equal: add "
            f"{{output: {spec.name}, function: argMax, axis: 1}} to spec.interface.postprocess, with the dimension of "
            f"the classes as axis; or {others}")
