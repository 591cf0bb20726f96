"""Inputs made up from an interface, where the user gives none: seeded, so that two builds see the same."""

from __future__ import annotations

import re

import numpy as np

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.shapes import UNBOUNDED, numpy_dtype, sample_shape, size_range, takes_batches
from enginewright_builder.tensors import Array, Tensors

# Size of a free dimension about which nothing better is known.
DEFAULT_SIZE = 64
_TIMES_LEAST = 4
# What exporters call the batch, ``x_0`` where it has no name.
_BATCHES = re.compile(r"(?i)n|bs?|batch.*|rows|.*_0")
_WORDS = np.array(["engine", "wright", "makes", "models", "fast", "and", "tells", "why", "Zürich", "42"])
# Integers are below this where nothing is known of the tables they index: any table has two rows.
DEFAULT_VOCABULARY = 2


def example_inputs(interface: Interface, batch: int, seed: int = 0, *, size: int = DEFAULT_SIZE,
                   vocabulary: int = DEFAULT_VOCABULARY) -> Tensors:
    """``batch`` samples: ``size`` (within each range) for free dimensions, token identifiers below ``vocabulary``. In
    whole calls what is called like a batch is 1. Images that engines resize have a size of their own for each
    ``seed``."""
    rng, batched = np.random.default_rng(seed), takes_batches(interface)
    return {spec.name: _values(spec, (batch, *_sample_sizes(spec, size, rng, batched=batched)), rng, vocabulary)
            for spec in interface.inputs}


def _sample_sizes(spec: TensorSpec, size: int, rng: np.random.Generator, *, batched: bool) -> tuple[int, ...]:
    shape = sample_shape(spec, batched=batched)
    if spec.preprocess is None:
        return _sizes(shape, size)
    return tuple(int(rng.integers(low, high, endpoint=True)) for low, high in map(size_range, shape))


def usual_size(interface: Interface, size: int) -> int:
    """``size``, or some times the least that an input takes where that is more: of the least number of samples a model
    of sound makes a single frame, which says nothing of how it joins frames."""
    low = max((size_range(one)[0] for spec in interface.inputs for one in spec.shape[1:] if isinstance(one, str)),
              default=1)
    return size if low <= size else _TIMES_LEAST * low


def _sizes(shape: tuple[int | str, ...], size: int) -> tuple[int, ...]:
    ranges = map(size_range, shape)
    return tuple(1 if isinstance(one, str) and _BATCHES.fullmatch(one) else
                 min(max(size, low), high if high < UNBOUNDED else max(size, low))
                 for one, (low, high) in zip(shape, ranges, strict=True))


def _values(spec: TensorSpec, shape: tuple[int, ...], rng: np.random.Generator, vocabulary: int) -> Array:
    dtype = numpy_dtype(spec.dtype)
    if spec.normalise is not None:
        return rng.integers(0, 256, shape).astype(dtype)
    if spec.name == "attention_mask":
        return np.ones(shape, dtype)
    if spec.name in ("token_type_ids", "position_ids"):
        return np.zeros(shape, dtype)
    if dtype.kind == "O":
        return rng.choice(_WORDS, shape).astype(np.object_)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0, min(vocabulary, np.iinfo(dtype).max), shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
