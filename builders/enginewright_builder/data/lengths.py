"""Samples as clients send them: each alone, in its own length. Texts are as long as they have tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from enginewright_builder.data.sets import SampleSet, trimmed
from enginewright_builder.tensors import Array, Tensors, count

# Single requests that a load sends round and round: of one shape, and of many.
EQUAL, VARIED = 16, 64
_SEED = 7

# What a graph takes of what clients send.
Take = Callable[[Tensors], Tensors]


def as_sent(inputs: Tensors) -> Tensors:
    return inputs


def ranked(evaluation: SampleSet, mask: str, take: Take = as_sent) -> list[tuple[tuple[int, ...], Tensors]]:
    """Each sample of the set as it is sent, without padding, from the shortest to the longest; with its length, 0
    without a mask, and its sizes. ``take`` makes what has ``mask`` of samples that have none."""
    found = []
    for batch in evaluation.batches:
        tokens = None if mask in batch else take(batch).get(mask)
        for row in range(count(batch)):
            sample = trimmed({name: array[row:row + 1] for name, array in batch.items()}, evaluation.least, mask)
            length = sample[mask].shape[1] if mask in sample else 0 if tokens is None else int(tokens[row].sum())
            found.append(((length, *size(sample)), sample))
    return sorted(found, key=lambda pair: pair[0])


def alone(evaluation: SampleSet, mask: str) -> list[Tensors]:
    """Each sample of the set, without padding, from the shortest to the longest."""
    return [sample for _, sample in ranked(evaluation, mask)]


def load_samples(evaluation: SampleSet, mask: str, take: Take = as_sent) -> list[Tensors]:
    """Single samples spread evenly over the lengths of the set, one of median length first, the others shuffled: a
    load that sends them round and round has the lengths of the user's own data. ``take`` as in :func:`ranked`."""
    found = ranked(evaluation, mask, take)
    samples = [sample for _, sample in found]
    if len({length for length, _ in found}) == 1:
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
