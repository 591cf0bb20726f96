"""Samples as clients send them: each alone, in its own length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from enginewright_builder.data.sets import SampleSet, trimmed
from enginewright_builder.tensors import Array, Tensors, count

# Single requests that a load sends round and round: of one shape, and of many.
EQUAL, VARIED = 16, 64
_SEED = 7


def alone(evaluation: SampleSet, mask: str) -> list[Tensors]:
    """Each sample of the set, without padding, from the shortest to the longest."""
    found = [trimmed({name: array[row:row + 1] for name, array in batch.items()}, evaluation.least, mask)
             for batch in evaluation.batches for row in range(count(batch))]
    return sorted(found, key=size)


def load_samples(evaluation: SampleSet, mask: str) -> list[Tensors]:
    """Single samples spread evenly over the lengths of the set, one of median length first, the others shuffled: a
    load that sends them round and round has the lengths of the user's own data."""
    samples = alone(evaluation, mask)
    if len({size(sample) for sample in samples}) == 1:
        return samples[:EQUAL]
    picked = spread(samples, VARIED)
    middle = picked.pop(len(picked) // 2)
    order = np.random.default_rng(_SEED).permutation(len(picked))
    return [middle, *(picked[place] for place in order)]


def spread(samples: Sequence[Tensors], most: int) -> list[Tensors]:
    """At most ``most`` of them, the first and the last among these, equally far apart."""
    places = np.unique(np.linspace(0, len(samples) - 1, min(most, len(samples))).round().astype(int))
    return [samples[place] for place in places]


def lengths(samples: Sequence[Tensors], mask: str) -> Array:
    """Of samples that stand alone."""
    return np.array([sample[mask].shape[1] for sample in samples])


def size(sample: Tensors) -> tuple[int, ...]:
    """By which samples are sorted: the same for equal shapes."""
    return tuple(length for name in sorted(sample) for length in sample[name].shape[1:])
