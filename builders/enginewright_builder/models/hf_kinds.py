"""Which part of a Hugging Face model is served, and what it takes: texts, images, both, sound, or series of numbers."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from enginewright_builder.contract import TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.padding import USUAL_MASK
from enginewright_builder.shapes import BATCH, TEXT_INPUTS

_FIELD = "spec.source.uri"
TEXT, IMAGE, WAVE, SPECTRUM, SERIES = "input_ids", "pixel_values", "input_values", "input_features", "past_values"
VIDEO = "pixel_values_videos"
# How configurations call the number of series that one sample has.
_SERIES_COUNT = "num_input_channels"
# Heads of models with a decoder that answer in one call; all other such models generate.
_ONE_CALL = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "EncoderModel",
             "ForAudioClassification", "ForCTC")
# What Whisper's own processor cuts sound into.
_SECONDS, _RATE = 30, 16_000
# Spectra a second of sound.
_SPECTRA = 100
# Parts of configurations that speak of images.
_SEEING = ("vision_config", "image_config", "backbone_config", "encoder")
# Arguments of ``forward`` that no request has.
_OF_TRAINING = re.compile(
    r"labels$|^return_|^output_|_embeds$|^past_key|^use_cache$|^cache_|head_mask$|^encoder_outputs$")
# How detectors call what scores the places that they pick queries from.
_PICKING = ("enc_score_head", "enc_out_class_embed")
_CHANNELS, _IMAGE_SIZE = 3, 224
# Of sounds: batch, time. Of texts: batch, tokens; a text of several choices has one size more.
_OF_SOUND = _OF_TEXT = 2


@dataclass(frozen=True, kw_only=True)
class Served:
    """``model`` is what is called. ``part`` says so where it is not the whole; ``takes_text`` whether a tokenizer makes
    inputs of its. ``others`` are the inputs that no tokenizer makes. ``outputs`` are those to keep, in order; empty for
    all. ``stated``: inputs are those that the user names, and no others."""

    model: Any
    part: str = ""
    takes_text: bool = False
    others: tuple[TensorSpec, ...] = ()
    outputs: tuple[str, ...] = ()
    stated: bool = False


def ways(model: Any, stated: Sequence[TensorSpec]) -> Iterator[Served]:
    """How the model may be called, the likeliest first: it is served the first way in which it answers. Where the user
    names other inputs than these there is one way. Raises :class:`UserError` ``UnsupportedModel`` for a model that
    takes something else, ``InterfaceInvalid`` for inputs that it does not take."""
    first = _towers(model) or _main(model, stated)
    if not _covers(first, stated):
        yield _as_stated(model, stated)
        return
    yield first
    if first.model is model:
        yield from _beside(model, first)


def _towers(model: Any) -> Served | None:
    """Of texts and of images. What such a model says of pairs depends on who else is in the batch; a client multiplies
    the two."""
    towers = ("get_text_features", "get_image_features")
    if not all(hasattr(model, name) for name in towers) or not hasattr(model.config, "vision_config"):
        return None
    return Served(model=model, takes_text=True, others=(_image(model.config.vision_config),),
                  outputs=("text_embeds", "image_embeds"))


def _main(model: Any, stated: Sequence[TensorSpec]) -> Served:
    called = model.get_encoder() if _generates(model) else model
    part, takes = _part(called, model), called.main_input_name
    if takes == TEXT:
        return Served(model=called, part=part, takes_text=True)
    # Some models, as Perceiver, name their main input alike for texts, images and sounds, and take pixel_values too.
    known = _others(takes, model) or (_others(IMAGE, model) if IMAGE in parameters(called) else ())
    if not known:
        if stated:
            return Served(model=called)
        raise unsupported(f"{type(model).__name__} takes {takes!r}, whose sizes do not follow from its config.json",
                          takes, model)
    return Served(model=called, part=part, others=known)


def _part(called: Any, model: Any) -> str:
    return "" if called is model else f"the encoder of {type(model).__name__}"


def _covers(served: Served, stated: Sequence[TensorSpec]) -> bool:
    """Whether what the user names is of this way's inputs, in as many dimensions."""
    own = {spec.name: spec for spec in served.others}
    if marks := mask_beside(served.others):
        own[marks.name] = marks
    return all(len(spec.shape) in (0, len(own[spec.name].shape)) if spec.name in own else
               served.takes_text and spec.name in TEXT_INPUTS and len(spec.shape) in (0, _OF_TEXT) for spec in stated)


def _beside(model: Any, main: Served) -> Iterator[Served]:
    """A series by itself, not one of several; images of the size that a part of the configuration says, or as many as
    a video has; texts and images together, where the model takes both; and the encoder of what generates from
    images."""
    if [spec.name for spec in main.others] == [SERIES] and not hasattr(model.config, _SERIES_COUNT):
        yield Served(model=model, others=(_fractions(SERIES, model.config.context_length),))
    texts, images = (name in inspect.signature(model.forward).parameters for name in (TEXT, IMAGE))
    for image in _images(model.config) if images else ():
        if (image,) != main.others and not main.takes_text:
            yield Served(model=model, others=(image,))
    for image in _images(model.config) if texts and images else ():
        yield Served(model=model, takes_text=True, others=(image,))
    if images and main.others and getattr(model.config, "is_encoder_decoder", False) and hasattr(model, "get_encoder"):
        called = model.get_encoder()
        for image in _images(model.config):
            yield Served(model=called, part=_part(called, model), others=(image,))


def _as_stated(model: Any, stated: Sequence[TensorSpec]) -> Served:
    """The encoder where it takes all that is named, else the whole."""
    named = [spec.name for spec in stated]
    parts = [model.get_encoder(), model] if _generates(model) else [model]
    for called in parts:
        known = parameters(called)
        if set(named) <= set(known):
            return Served(model=called, part=_part(called, model), stated=True)
    unknown = next(name for name in named if name not in known)
    raise UserError("InterfaceInvalid", f"{type(model).__name__} has no input {unknown!r}; it takes {', '.join(known)}",
                    field="spec.interface.inputs", value=unknown, remedy="name the model's own inputs, or leave "
                                                                         "interface out where the source tells them")


def unsupported(message: str, value: object, model: Any) -> UserError:
    """With what the user can do: say what the model takes, or export it."""
    needed = [name for name, one in parameters(model).items() if one.default is inspect.Parameter.empty]
    listed = f" ({', '.join(needed)}, …)" if needed else ""
    return UserError("UnsupportedModel", message, field=_FIELD, value=value,
                     remedy=f"list what its forward takes in spec.interface.inputs{listed}, each with dtype and shape, "
                            "the batch in front; or export what is to be served with torch.export.save or to ONNX")


def parameters(called: Any) -> dict[str, inspect.Parameter]:
    """What ``forward`` takes that may be a tensor of a request."""
    return {name: one for name, one in inspect.signature(called.forward).parameters.items()
            if one.kind is not inspect.Parameter.VAR_KEYWORD and not _OF_TRAINING.search(name)}


def mask_beside(others: Sequence[TensorSpec]) -> TensorSpec | None:
    """What marks the padding of sounds in one batch; None for anything else than sounds of free length."""
    sound = next((spec for spec in others if spec.name == WAVE and len(spec.shape) == _OF_SOUND), None)
    return sound and TensorSpec(name=USUAL_MASK, dtype="int64", shape=sound.shape)


def picks_queries(model: Any) -> bool:
    """Whether a detector's rows are of the best places that it found itself: their order is that of the scores."""
    return bool(getattr(model.config, "two_stage", False)) or any(
        name.rpartition(".")[2] in _PICKING for name, _ in model.named_modules())


def sizes_to_observe(low: int) -> tuple[int, int]:
    """Two sizes of the free dimensions, which are ``low`` at least, far enough apart to tell which outputs grow."""
    return max(5, 2 * low), max(7, 3 * low)


def _generates(model: Any) -> bool:
    if not getattr(model.config, "is_encoder_decoder", False) or not hasattr(model, "get_encoder"):
        return False
    return model.main_input_name in (TEXT, SPECTRUM, WAVE) and not type(model).__name__.endswith(_ONE_CALL)


def _others(takes: str, model: Any) -> tuple[TensorSpec, ...]:
    """None where the configuration does not say their sizes."""
    config = model.config
    if takes == IMAGE:
        return (_image(config),)
    if takes == VIDEO and (frames := _frames(config)):
        return (_video(VIDEO, frames, _image(config)),)
    if takes in (WAVE, SPECTRUM) and (shape := _sound(takes, config, _least_frames(model))):
        return (_fractions(takes, *shape),)
    if takes == SERIES and hasattr(config, "lags_sequence"):
        return tuple(_lagged(config))
    if takes == SERIES and hasattr(config, "context_length"):
        return (_fractions(takes, config.context_length, getattr(config, _SERIES_COUNT, 1)),)
    return ()


def _lagged(config: Any) -> Iterator[TensorSpec]:
    """Of a series that is looked at beside its own past: as many values more in front, what is known of each time, and
    of the series as a whole."""
    length = config.context_length + max(config.lags_sequence)
    channels = () if config.input_size == 1 else (config.input_size,)
    yield _fractions(SERIES, length, *channels)
    yield _fractions("past_time_features", length, config.num_time_features + config.num_dynamic_real_features)
    yield _fractions("past_observed_mask", length, *channels)
    if config.num_static_categorical_features:
        yield TensorSpec(name="static_categorical_features", dtype="int64",
                         shape=(BATCH, config.num_static_categorical_features))
    if config.num_static_real_features:
        yield _fractions("static_real_features", config.num_static_real_features)


def _fractions(name: str, *shape: int | str) -> TensorSpec:
    return TensorSpec(name=name, dtype="float32", shape=(BATCH, *shape))


def _images(config: Any) -> Iterator[TensorSpec]:
    """Of the size that the configuration says, or one of its parts; where it has a number of frames, as many of these
    in front of the channels."""
    parts = [getattr(config, name, None) for name in _SEEING]
    found = dict.fromkeys(_image(one) for one in (config, *parts) if one is config or hasattr(one, "image_size"))
    yield from found
    if frames := _frames(config):
        for one in found:
            yield _video(IMAGE, frames, one)


def _frames(config: Any) -> int:
    """0 where the configuration has no number of frames."""
    found = getattr(config, "num_frames", None) or getattr(config, "frames_per_clip", None)
    return found if isinstance(found, int) else 0


def _video(name: str, frames: int, image: TensorSpec) -> TensorSpec:
    return dataclasses.replace(image, name=name, shape=(BATCH, frames, *image.shape[1:]))


def _image(config: Any) -> TensorSpec:
    size = getattr(config, "image_size", None) or getattr(config, "crop_size", None) or _IMAGE_SIZE
    height, width = (size, size) if isinstance(size, int) else size
    channels = getattr(config, "num_channels", None) or _CHANNELS
    return TensorSpec(name=IMAGE, dtype="float32", shape=(BATCH, channels, height, width))


def _sound(takes: str, config: Any, frames: int) -> tuple[int | str, ...]:
    """Sizes after the batch, for ``frames`` at least; none where the configuration does not say."""
    if takes == SPECTRUM and hasattr(config, "max_source_positions") and hasattr(config, "num_mel_bins"):
        return config.num_mel_bins, 2 * config.max_source_positions  # Whisper's convolution halves the frames
    if takes == SPECTRUM and hasattr(config, "input_feat_per_channel"):
        # Speech2Text: each convolution halves the frames.
        return f"{2 ** config.num_conv_layers}..{config.max_source_positions}", config.input_feat_per_channel
    encoder = getattr(config, "encoder_config", config)
    if takes == SPECTRUM and hasattr(encoder, "subsampling_factor") and hasattr(encoder, "num_mel_bins"):
        return f"{encoder.subsampling_factor}..{_SECONDS * _SPECTRA}", encoder.num_mel_bins
    if takes == SPECTRUM and hasattr(config, "feature_projection_input_dim"):
        return f"1..{_SECONDS * _SPECTRA}", config.feature_projection_input_dim
    if takes == WAVE and hasattr(config, "conv_kernel"):
        return (f"{_least_samples(config, frames)}..{_SECONDS * _RATE}",)
    if takes == WAVE and hasattr(config, "max_length") and hasattr(config, "num_mel_bins"):
        return config.max_length, config.num_mel_bins  # the Audio Spectrogram Transformer
    return ()


def _least_frames(model: Any) -> int:
    """Heads that tell speakers apart look at many at once, and at how two of what they find differ."""
    config = model.config
    if not type(model).__name__.endswith("ForXVector"):
        return 1
    return 2 + sum((int(size) - 1) * int(step) for size, step in zip(config.tdnn_kernel, config.tdnn_dilation,
                                                                      strict=True))


def _least_samples(config: Any, samples: int) -> int:
    """Of which the convolutions still make so many frames, where SEW makes one of several."""
    samples *= getattr(config, "squeeze_factor", 1)
    for kernel, stride in zip(reversed(config.conv_kernel), reversed(config.conv_stride), strict=True):
        samples = (samples - 1) * stride + kernel
    return samples
