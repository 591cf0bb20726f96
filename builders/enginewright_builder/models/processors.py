"""What makes the source's input of the bytes that clients send, on the source's side: NumPy and Pillow for what the
user wrote down, the source's own image processor where its folder brings one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from enginewright_builder.contract import Interface, Normalise, Preprocess, TensorSpec
from enginewright_builder.errors import UserError, brief, first_line, known_or
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.normalise import normalised, normalised_planes, order
from enginewright_builder.preprocess import by_products, check, resized_sizes
from enginewright_builder.shapes import shape_text
from enginewright_builder.tensors import Array

FIELD = "spec.interface.inputs.preprocess.fromSource"
# A batch as clients send it to the source's input.
Processor = Callable[[Array], Array]
# As PIL numbers its filters, and files keep them.
_FILTERS: dict[int, Literal["bilinear", "bicubic"]] = {2: "bilinear", 3: "bicubic"}
# How far a pixel may be apart, of 255, and all of them on average: each of two products may be rounded either way. With
# another filter noise is tens apart.
_APART, _ON_AVERAGE = 2.1, 0.5
_TRIED = 2
_CHANNELS = (1, 3, 4)


def processor(spec: TensorSpec) -> Processor:
    """As the user wrote it."""
    if spec.preprocess is None:
        return functools.partial(normalised, spec)
    return functools.partial(_by_pillow, spec, spec.preprocess)


def _by_pillow(spec: TensorSpec, how: Preprocess, images: Array) -> Array:
    planes = images.transpose(order(spec))
    height, width = resized_sizes(how, *planes.shape[2:])
    top, left = (height - how.made[0]) // 2, (width - how.made[1]) // 2
    resized = np.stack([np.stack([_resized(plane, height, width, how.resample) for plane in image])
                        for image in planes])[:, :, top:top + how.made[0], left:left + how.made[1]]
    return normalised_planes(spec, resized)


def _of(spec: TensorSpec) -> Normalise:
    assert spec.normalise is not None
    return spec.normalise


def _resized(plane: Array, height: int, width: int, resample: str) -> Array:
    from PIL import Image

    number = next(number for number, name in _FILTERS.items() if name == resample)
    return np.asarray(Image.fromarray(np.ascontiguousarray(plane)).resize((width, height), Image.Resampling(number)))


def of_folder(folder: Path, spec: TensorSpec) -> tuple[TensorSpec, Processor]:
    """``spec`` with what the folder's own processor does, and that processor. Raises :class:`UserError`
    ``InterfaceInvalid`` for one that does something that engines do not."""
    found = opened(folder, FIELD)
    made = dataclasses.replace(spec, **_settings(found, spec))
    check(made)
    run = functools.partial(_by_processor, found, made)
    _try(made, run)
    return made, run


def opened(folder: Path, field: str) -> Any:
    """The folder's own image processor. Raises :class:`UserError` ``InterfaceInvalid`` of ``field``."""
    import transformers

    loads: Any = transformers.AutoImageProcessor  # it has no types
    try:
        return loads.from_pretrained(folder, local_files_only=True, trust_remote_code=False, backend="pil")
    except Exception as error:  # processors fail in as many ways as there are kinds of them
        raise known_or(error, UserError(
            "InterfaceInvalid", f"the processor of preprocessor_config.json cannot be loaded: {first_line(error)}",
            field=field, value=type(error).__name__, remedy="copy preprocessor_config.json beside config.json, or "
            "write yourself what it would say, without fromSource")) from error


def _settings(found: Any, spec: TensorSpec) -> dict[str, Any]:
    """Resize, crop and normalisation as the loaded processor has them: what its file leaves out is in its class."""
    def has(step: str) -> bool:
        return bool(getattr(found, step, False))

    size = {name: value for name, value in dict(getattr(found, "size", None) or {}).items() if value}
    if not has("do_resize") or sorted(size) not in (["height", "width"], ["shortest_edge"]):
        raise _unsupported("it does not resize to one size", size or "do_resize: false")
    if (resample := int(getattr(found, "resample", 2))) not in _FILTERS:
        raise _unsupported("its filter is neither bilinear nor bicubic", f"resample: {resample}")
    crop = dict(found.crop_size) if has("do_center_crop") else {}
    how = Preprocess(from_source=True, height=size.get("height", 0), width=size.get("width", 0),
                     shortest_edge=size.get("shortest_edge", 0), resample=_FILTERS[resample],
                     crop_height=crop.get("height") or 0, crop_width=crop.get("width") or 0)
    if not all(how.made):
        raise _unsupported("images of different sides stay of different sizes", size)
    normalises = has("do_normalize")
    normalise = Normalise(scale=float(found.rescale_factor) if has("do_rescale") else 1.0,
                          mean=_numbers(found.image_mean) if normalises else (0.0,),
                          std=_numbers(found.image_std) if normalises else (1.0,), channels=_channels(spec))
    return {"preprocess": how, "normalise": normalise}


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(float(number) for number in (value if isinstance(value, list | tuple) else [value]))


def _channels(spec: TensorSpec) -> Literal["first", "last"]:
    first, last = (spec.shape[axis] in _CHANNELS for axis in (1, -1))
    if first == last:
        raise UserError("InterfaceInvalid", f"input {spec.name!r}: where the channels are is not clear",
                        field=f"spec.interface.inputs[{spec.name}].shape", value=shape_text(spec.shape),
                        remedy="write one size as the number of channels, such as [batch, 224..1024, 224..1024, 3]")
    return "first" if first else "last"


def _by_processor(found: Any, spec: TensorSpec, images: Array) -> Array:
    layout = f"channels_{_of(spec).channels}"
    made = found(images=list(images), return_tensors="np", input_data_format=layout)["pixel_values"]
    return np.ascontiguousarray(made, dtype=np.float32)


def _try(spec: TensorSpec, run: Processor) -> None:
    """The processor makes of made-up images what was read from it: its class may do more than its settings say."""
    how = _of(spec)
    step = how.scale / min(how.std)
    for seed in range(_TRIED):
        images = example_inputs(Interface(inputs=(spec,)), _TRIED, seed)[spec.name]
        try:
            one, other = run(images), by_products(spec, images)
        except Exception as error:  # processors fail in as many ways as there are kinds of them
            raise known_or(error, _unsupported(
                f"it fails on images of {shape_text(images.shape[1:])}: {brief(error, 200)}",
                type(error).__name__)) from error
        apart = np.abs(one - other) / step if one.shape == other.shape else np.array([np.inf])
        if apart.max() > _APART or apart.mean() > _ON_AVERAGE:
            raise _unsupported("it makes other images than its size, crop_size, resample, rescale_factor, image_mean "
                               f"and image_std say: {shape_text(one.shape)}, up to {apart.max():.3g} of 255 apart",
                               shape_text(images.shape[1:]))


def _unsupported(what: str, value: object) -> UserError:
    return UserError("InterfaceInvalid", f"the processor of preprocessor_config.json: {what}",
                     field=FIELD, value=value,
                     remedy="write the steps yourself (size, resample, cropSize, normalise), or leave preprocess out "
                            "and let clients send what the model takes")
