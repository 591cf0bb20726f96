"""Batch buckets: at which batches candidates are compared, engines tuned and CUDA graphs captured."""

from __future__ import annotations

from enginewright_builder.engines.base import BatchRange

# A bucket answers what is up to this many times smaller: finer buckets cost a build and a graph each, and batches
# within a factor of four rarely want another kernel.
_FACTOR = 4


def batch_buckets(max_batch_size: int, preferred: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Ascending, with 1 and ``max_batch_size`` at the ends: ``(1, 8, 32)`` for 32.

    ``preferred`` are the sizes that the user wants gathered; they are buckets then, instead of the powers of four.
    """
    largest = max(1, max_batch_size)
    inner = [size for size in preferred if 1 < size < largest]
    if not inner:
        size = largest // _FACTOR
        while size > _FACTOR // 2:
            inner.append(size)
            size //= _FACTOR
    return tuple(sorted({1, *inner, largest}))


def bucket_ranges(buckets: tuple[int, ...]) -> tuple[BatchRange, ...]:
    """A range for each bucket, tuned for its largest batch, which a full queue fills: 1, 2–8, 9–32."""
    lows = (1, *(size + 1 for size in buckets[:-1]))
    return tuple(BatchRange(low=low, best=high, high=high) for low, high in zip(lows, buckets, strict=True))


def bucket_of(batch: int, buckets: tuple[int, ...]) -> int:
    """The smallest bucket that holds ``batch``. Raises ``ValueError`` for a batch above the largest."""
    for size in buckets:
        if batch <= size:
            return size
    raise ValueError(f"a batch of {batch} is above the largest bucket {buckets[-1]}")
