"""Inputs made up from an interface, where the user gives none: seeded, so that two builds see the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.padding import TOKENS, USUAL_MASK
from enginewright_builder.shapes import (
    STEPS,
    UNBOUNDED,
    is_batch,
    numpy_dtype,
    sample_shape,
    size_range,
    takes_batches,
)
from enginewright_builder.tensors import Array, Tensors

# Size of a free dimension about which nothing better is known.
DEFAULT_SIZE = 64
_TIMES_LEAST = 4
# Made-up images have no larger side, unless the model takes none this small: a batch of 16 has to fit into memory.
_LARGEST_IMAGE = 1024
# Of a made-up sequence of requests: enough that what an engine loses in each adds up.
SYNTHETIC_STEPS = 32
_WORDS = np.array(["engine", "wright", "makes", "models", "fast", "and", "tells", "why", "Zürich", "42"])
_TEXT = """
    the a of in to and with from after before when because it was were has had is are not no our their every another
    nurse violinist neighbour train lighthouse council gardener van pilot baker ferry school referee museum judge
    waited forgot praised needs arrived lost changed caused opened closed repaired measured counted found answered
    rain letter newspaper paint key meeting year discussion storm price winter coffee engine model city house water
    early quietly often never slowly again yesterday 42 1984 Zürich naïve e-mail
    """
_SHORTEST = 2
# Integers are below this where nothing is known of the tables they index: any table has two rows.
DEFAULT_VOCABULARY = 2

# How models of transformers call what marks the parts of an input that are there, and what is of no size or kind.
_PRESENT = ("pixel_mask", "past_observed_mask")
_ZEROS = ("token_type_ids", "position_ids", "bbox")


def example_inputs(interface: Interface, batch: int, seed: int = 0, *, size: int = DEFAULT_SIZE,
                   vocabulary: int = DEFAULT_VOCABULARY, end_token: int | None = None,
                   pad_token: int | None = None, rows: Mapping[str, int] | None = None) -> Tensors:
    """``batch`` samples: ``size`` (within each range) for free dimensions, token identifiers below ``vocabulary``, of
    texts with ``end_token`` at their end alone and without ``pad_token``; other integers below what ``rows`` says of
    their input, or else ``vocabulary``. In whole calls what is called like a batch is 1. Images that engines resize
    have a size of their own for each ``seed``."""
    rng, batched = np.random.default_rng(seed), takes_batches(interface)
    below = {**(rows or {}), TOKENS: vocabulary}
    made = {spec.name: _values(spec, (batch, *_sample_sizes(spec, size, rng, batched=batched)), rng,
                               below.get(spec.name, vocabulary), size) for spec in interface.inputs}
    if TOKENS in made:
        made[TOKENS] = _as_text(made[TOKENS], vocabulary, end_token, pad_token)
    return made


def half_filled(name: str, value: Any) -> Any:
    """``value``, an array or tensor of the input ``name``, as of texts that are half as long, filled up."""
    if name != USUAL_MASK:
        return value
    value = value + 0
    value[..., (value.shape[-1] + 1) // 2:] = 0
    return value


def _as_text(tokens: Array, vocabulary: int, end_token: int | None, pad_token: int | None) -> Array:
    """As tokenizers make them. Models that answer at the last token find it by its identifier. Of padding, whose
    vector is zeros in many models, all experts of a mixture are scored alike: which of them answer nothing decides."""
    special = [token for token in (end_token, pad_token) if token is not None]
    other = next((token for token in range(vocabulary) if token not in special), None)
    if other is not None:
        tokens = np.where(np.isin(tokens, special), other, tokens).astype(tokens.dtype)
    if end_token is not None:
        tokens[..., -1] = end_token
    return tokens


def _sample_sizes(spec: TensorSpec, size: int, rng: np.random.Generator, *, batched: bool) -> tuple[int, ...]:
    shape = sample_shape(spec, batched=batched)
    if spec.preprocess is None:
        return _sizes(shape, size)
    return tuple(int(rng.integers(low, max(low, min(high, _LARGEST_IMAGE)), endpoint=True))
                 for low, high in map(size_range, shape))


def usual_size(interface: Interface, size: int) -> int:
    """``size``, or some times the least that an input takes where that is more: of the least number of samples a model
    of sound makes a single frame, which says nothing of how it joins frames."""
    low = max((size_range(one)[0] for spec in interface.inputs for one in spec.shape[1:] if isinstance(one, str)),
              default=1)
    return size if low <= size else _TIMES_LEAST * low


def _sizes(shape: tuple[int | str, ...], size: int) -> tuple[int, ...]:
    ranges = map(size_range, shape)
    return tuple(SYNTHETIC_STEPS if one == STEPS else 1 if is_batch(one) else
                 min(max(size, low), high if high < UNBOUNDED else max(size, low))
                 for one, (low, high) in zip(shape, ranges, strict=True))


def _sentences(shape: tuple[int, ...], rng: np.random.Generator, size: int) -> Array:
    """Of lengths from :data:`_SHORTEST` to ``size`` words, of which many are short, as texts are."""
    lengths = np.exp(rng.uniform(np.log(_SHORTEST), np.log(max(size, _SHORTEST)), shape)).astype(int)
    words = _TEXT.split()
    made = [" ".join(rng.choice(words, length)) for length in lengths.ravel()]
    return np.array(made, np.object_).reshape(shape)


def _values(spec: TensorSpec, shape: tuple[int, ...], rng: np.random.Generator, below: int, size: int) -> Array:
    dtype = numpy_dtype(spec.dtype)
    if spec.normalise is not None:
        return rng.integers(0, 256, shape).astype(dtype)
    if spec.name.endswith("attention_mask") or spec.name in _PRESENT:
        return np.ones(shape, dtype)
    if spec.name in _ZEROS:
        return np.zeros(shape, dtype)
    if spec.preprocess is not None and dtype.kind == "O":
        return _sentences(shape, rng, size)
    if dtype.kind == "O":
        return rng.choice(_WORDS, shape).astype(np.object_)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0, min(below, np.iinfo(dtype).max), shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
