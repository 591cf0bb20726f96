"""Which part of a Hugging Face model is served, and what it takes: texts, images, both, sound, or series of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from enginewright_builder.contract import TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.padding import USUAL_MASK
from enginewright_builder.shapes import BATCH

_FIELD = "spec.source.uri"
TEXT, IMAGE, WAVE, SPECTRUM, SERIES = "input_ids", "pixel_values", "input_values", "input_features", "past_values"
# Heads of models with a decoder that answer in one call; all other such models generate.
_ONE_CALL = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "EncoderModel",
             "ForAudioClassification", "ForCTC")
# What Whisper's own processor cuts sound into.
_SECONDS, _RATE = 30, 16_000
# How detectors call what scores the places that they pick queries from.
_PICKING = ("enc_score_head", "enc_out_class_embed")
_CHANNELS, _IMAGE_SIZE = 3, 224
# Of sounds: batch, time.
_OF_SOUND = 2


@dataclass(frozen=True, kw_only=True)
class Served:
    """``model`` is what is called. ``part`` says so where it is not the whole; ``takes_text`` whether a tokenizer makes
    inputs of its. ``others`` are the inputs that no tokenizer makes. ``outputs`` are those to keep, in order; empty for
    all."""

    model: Any
    part: str = ""
    takes_text: bool = False
    others: tuple[TensorSpec, ...] = ()
    outputs: tuple[str, ...] = ()


def served_part(model: Any) -> Served:
    """Raises :class:`UserError` ``UnsupportedModel`` for a model that takes something else."""
    if hasattr(model, "get_text_features") and hasattr(model, "get_image_features"):
        # What it says of pairs depends on who else is in the batch; a client multiplies the two.
        return Served(model=model, takes_text=True, others=(_image(model.config.vision_config),),
                      outputs=("text_embeds", "image_embeds"))
    encoder = _generates(model)
    called = model.get_encoder() if encoder else model
    part = f"the encoder of {type(model).__name__}" if encoder else ""
    takes = called.main_input_name
    if takes == TEXT:
        return Served(model=called, part=part, takes_text=True)
    return Served(model=called, part=part, others=(_other(takes, model),))


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


def _other(takes: str, model: Any) -> TensorSpec:
    config = model.config
    if takes == IMAGE:
        return _image(config)
    if takes in (WAVE, SPECTRUM) and (shape := _sound(takes, config, _least_frames(model))):
        return TensorSpec(name=takes, dtype="float32", shape=(BATCH, *shape))
    if takes == SERIES and hasattr(config, "context_length"):
        channels = getattr(config, "num_input_channels", 1)
        return TensorSpec(name=takes, dtype="float32", shape=(BATCH, config.context_length, channels))
    raise UserError("UnsupportedModel", f"{type(model).__name__} takes {takes!r}, which is not loaded from folders",
                    field=_FIELD, value=takes, remedy="export the model with torch.export.save or to ONNX")


def _image(config: Any) -> TensorSpec:
    size = getattr(config, "image_size", None) or _IMAGE_SIZE
    height, width = (size, size) if isinstance(size, int) else size
    channels = getattr(config, "num_channels", None) or _CHANNELS
    return TensorSpec(name=IMAGE, dtype="float32", shape=(BATCH, channels, height, width))


def _sound(takes: str, config: Any, frames: int) -> tuple[int | str, ...]:
    """Sizes after the batch, for ``frames`` at least; none where the configuration does not say."""
    if takes == SPECTRUM and hasattr(config, "max_source_positions") and hasattr(config, "num_mel_bins"):
        return config.num_mel_bins, 2 * config.max_source_positions  # Whisper's convolution halves the frames
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
    """Of which the convolutions still make so many frames."""
    for kernel, stride in zip(reversed(config.conv_kernel), reversed(config.conv_stride), strict=True):
        samples = (samples - 1) * stride + kernel
    return samples
