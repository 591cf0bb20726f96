"""What is wrong with images that a spec wants resized."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright.core.problems import Problem
from enginewright.core.spec.interface import MAX_PIXELS, ImageSizeSpec, InputSpec, PreprocessSpec
from enginewright.core.spec.parse import show
from enginewright.core.spec.text_rules import is_text

# Batch, channels, height and width.
_DIMENSIONS = 4
_SHAPE = "write the images that clients send, such as [batch, 224..1024, 224..1024, 3]"


def image_problems(field: str, tensor: InputSpec) -> Iterator[Problem]:
    """``field`` is the path of the input."""
    how = tensor.preprocess
    if how is None or is_text(tensor):
        return
    if tensor.dtype != "uint8" and tensor.normalise is None:
        yield _problem(f"{field}.dtype", tensor.dtype, "cannot be resized: clients send bytes",
                       "write uint8, or string for texts, or remove preprocess")
    if len(tensor.shape) != _DIMENSIONS:
        yield _problem(f"{field}.shape", list(tensor.shape), "is no batch of images", _SHAPE)
    elif unbounded := [size for size in _sides(tensor) if not _bounded(size)]:
        yield _problem(f"{field}.shape", unbounded[0], "is no side of an image that is resized",
                       f"write heights and widths as numbers or ranges up to {MAX_PIXELS}, such as 224..1024")
    if how.from_source == (tensor.normalise is not None):
        yield _problem(f"{field}.normalise", tensor.normalise and tensor.normalise.model_dump(by_alias=True),
                       "and preprocess.fromSource exclude each other" if how.from_source else
                       "is missing beside preprocess.size",
                       "remove one of them" if how.from_source else
                       "write {} for numbers from 0 to 1, or the mean and std that the model was trained with")
    yield from _steps(f"{field}.preprocess", how)


def _sides(tensor: InputSpec) -> tuple[int | str, ...]:
    """Heights and widths; where the channels are is the source's to say with fromSource, and numbers anyway."""
    first = tensor.normalise is not None and tensor.normalise.channels == "first"
    if tensor.normalise is None:
        return tuple(size for size in tensor.shape[1:] if not isinstance(size, int))
    return tensor.shape[2:] if first else tensor.shape[1:3]


def _bounded(size: int | str) -> bool:
    if isinstance(size, int):
        return size <= MAX_PIXELS
    _, dots, high = size.partition("..")
    return bool(dots) and int(high) <= MAX_PIXELS


def _steps(field: str, how: PreprocessSpec) -> Iterator[Problem]:
    given = [name for name, value in (("size", how.size), ("cropSize", how.crop_size),
                                      ("resample", how.resample == "bicubic")) if value]  # the other was a default once
    if how.from_source and given:
        yield _problem(f"{field}.fromSource", True, f"takes all of it from the source, and there is {given[0]}",
                       "remove fromSource, or the other fields of preprocess")
        return
    if how.from_source:
        return
    if how.size is None:
        yield _problem(f"{field}.size", None, "is missing", "write height and width, or shortestEdge with cropSize; or "
                                                            "fromSource: true in its place")
        return
    yield from _sizes(field, how, how.size)


def _sizes(field: str, how: PreprocessSpec, size: ImageSizeSpec) -> Iterator[Problem]:
    shown = size.model_dump(by_alias=True, exclude_none=True)
    if (size.height is None) != (size.width is None) or (size.shortest_edge is None) == (size.height is None):
        yield _problem(f"{field}.size", shown, "does not say one size", "write height and width, or shortestEdge")
        return
    if how.crop_size is None:
        if size.shortest_edge is not None:
            yield _problem(f"{field}.cropSize", None, "is missing: by the shorter side alone images stay of different "
                           "sizes", "add cropSize, or write height and width into size")
        return
    whole = (size.height or size.shortest_edge or 0, size.width or size.shortest_edge or 0)
    if how.crop_size.height > whole[0] or how.crop_size.width > whole[1]:
        yield _problem(f"{field}.cropSize", how.crop_size.model_dump(by_alias=True), "is more than size leaves",
                       "write at most what size says, or a larger size")


def _problem(field: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=field, value=show(value), message=message, remedy=remedy)
