"""Images that engines resize and crop themselves: what may be asked for, and the numbers that a resize multiplies with.
NumPy alone; ``onnx_preprocess.py`` writes it into a graph.

A resize is two products with matrices, one along rows of pixels and one along columns, with the filters of Pillow, as
the processors of Hugging Face have them. ONNX's own Resize has these filters as ``antialias``, which TensorRT does not
take. A crop leaves rows of a matrix out. Every engine multiplies matrices.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from enginewright_builder.contract import Interface, Preprocess, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.normalise import channels_first, normalised_planes, order
from enginewright_builder.shapes import BATCH, STRING, UNBOUNDED, shape_text, size_range
from enginewright_builder.sources.formats import Located, read_settings
from enginewright_builder.tensors import Array

PROCESSOR_FILE = "preprocessor_config.json"
# Batch, channels, height, width.
_DIMENSIONS = 4
# Up to here products of two sizes are exact in FP32, which engines compute positions in.
MOST_PIXELS = 4096


def asked(interface: Interface | None) -> bool:
    """Whether clients send images otherwise than the source takes them."""
    return interface is not None and any((spec.normalise or spec.preprocess) and spec.dtype != STRING
                                         for spec in interface.inputs)


def check_source(located: Located, spec: TensorSpec) -> None:
    """The source has the processor that ``spec`` asks for, as far as its files say so. Raises :class:`UserError`
    ``InterfaceInvalid`` or ``SourceCorrupt``."""
    if spec.dtype == STRING or spec.preprocess is None or not spec.preprocess.from_source:
        return
    if spec.normalise is not None or spec.preprocess != Preprocess(from_source=True):
        raise _invalid(f"input {spec.name!r} says twice what is made of images",
                       f"spec.interface.inputs[{spec.name}].preprocess.fromSource", "true",
                       "remove fromSource, or size, resample, cropSize and normalise")
    path = located.path / PROCESSOR_FILE
    if located.format == "huggingface" and path.is_file():
        read_settings(path)
        return
    why = f"has no {PROCESSOR_FILE}" if located.format == "huggingface" else f"is {located.format}, not huggingface"
    raise _invalid(f"input {spec.name!r} is to be processed as the source says, and the source {why}",
                   f"spec.interface.inputs[{spec.name}].preprocess.fromSource", "true",
                   f"put {PROCESSOR_FILE} into the model's folder, or write size, resample, cropSize and normalise")


def check(spec: TensorSpec) -> None:
    """Raises :class:`UserError` ``InterfaceInvalid`` for what no engine can make of images. What stands in the source's
    own files is not looked at."""
    how, field = spec.preprocess, f"spec.interface.inputs[{spec.name}]"
    if how is None or spec.dtype == STRING:
        return
    if len(spec.shape) != _DIMENSIONS or spec.shape[0] != BATCH:
        raise _invalid(f"input {spec.name!r} is no batch of images", f"{field}.shape", shape_text(spec.shape),
                       "write the images that clients send, such as [batch, 224..1024, 224..1024, 3]")
    if how.from_source and spec.normalise is None:  # not read yet
        return
    if spec.normalise is None:
        raise _invalid(f"input {spec.name!r} is resized and not normalised", f"{field}.normalise", None,
                       "write normalise: {} for numbers from 0 to 1, or what the model was trained with")
    if not all(how.made) or not (how.shortest_edge or (how.height and how.width)):
        raise _invalid(f"input {spec.name!r}: how large images become is not said", f"{field}.preprocess.size",
                       shape_text(how.made), "write height and width, or shortestEdge with cropSize")
    _check_sizes(spec, how, field)


def _check_sizes(spec: TensorSpec, how: Preprocess, field: str) -> None:
    for crop, whole in zip(how.made, (how.height or how.shortest_edge, how.width or how.shortest_edge), strict=True):
        if crop > whole:
            raise _invalid(f"input {spec.name!r} is cut to more than it is resized to",
                           f"{field}.preprocess.cropSize", shape_text(how.made),
                           "write at most what size says, or a larger size")
    for size in channels_first(spec, spec.shape)[2:]:
        if size_range(size)[1] == UNBOUNDED or size_range(size)[1] > MOST_PIXELS:
            raise _invalid(f"input {spec.name!r} has no bound in {size}", f"{field}.shape", shape_text(spec.shape),
                           f"write heights and widths as numbers or ranges up to {MOST_PIXELS}, such as 224..1024")


def _invalid(message: str, field: str, value: object, remedy: str) -> UserError:
    return UserError("InterfaceInvalid", message, field=field, value=value, remedy=remedy)


def resized_sizes(how: Preprocess, height: int, width: int) -> tuple[int, int]:
    """Height and width before the crop, of an image of this size."""
    if not how.shortest_edge:
        return how.height, how.width
    least = min(height, width)
    return how.shortest_edge * height // least, how.shortest_edge * width // least


def matrix(pixels: int, resized: int, kept: int, resample: str) -> Array:
    """``float32[kept, pixels]``: what each of the ``kept`` in the middle of ``resized`` pixels is made of."""
    first = (resized - kept) // 2
    place = 2 * np.arange(pixels) + 1
    wanted = 2 * (np.arange(kept) + first)[:, None] + 1
    weights = _FILTERS[resample](np.abs(place * resized - wanted * pixels) / (2 * max(pixels, resized)))
    made: Array = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return made


def by_products(spec: TensorSpec, images: Array) -> Array:
    """The source's input, in the arithmetic of the graph: columns first, rounded to whole numbers after each product.
    Pillow takes rows first where that is less work, so that a pixel may differ by one of 255."""
    how = spec.preprocess
    assert how is not None
    planes = images.transpose(order(spec)).astype(np.float32)
    height, width = planes.shape[2:]
    rows, columns = resized_sizes(how, height, width)
    planes = _rounded(planes @ matrix(width, columns, how.made[1], how.resample).T)
    return normalised_planes(spec, _rounded(matrix(height, rows, how.made[0], how.resample) @ planes))


def _rounded(values: Array) -> Array:
    made: Array = np.clip(np.floor(values + np.float32(0.5)), 0, 255)
    return made


def _bilinear(distance: Array) -> Array:
    return np.maximum(0.0, 1.0 - distance)


def _bicubic(distance: Array) -> Array:
    """With Pillow's a = -0.5."""
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    made: Array = np.where(distance < 1, near, np.where(distance < 2, far, 0.0))
    return made


_FILTERS: dict[str, Callable[[Array], Array]] = {"bilinear": _bilinear, "bicubic": _bicubic}
