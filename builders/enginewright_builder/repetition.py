"""``python -m enginewright_builder.repetition FILE --answer-bytes N``: how often would a response cache have answered?

FILE has samples of requests, ``.npz`` or ``.jsonl``, as captures do. In a uniform sample each request is as popular as
in the traffic, but repetitions lie further apart, and it begins with an empty cache: both cost hits, so that what is
printed is the least to expect. Each row counts as a request: a batch has another key than its rows, and repeats less.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MEBIBYTE = 1 << 20
# Of Triton 2.51's local cache, for each answer beside its own bytes, as measured by nv_cache_util.
OVERHEAD_BYTES = 128
# Of the hits that an unbounded cache would have, those that a proposed one may do without.
SPARED = 0.01


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """Of so many ``samples``, ``distinct`` ones. ``shares`` maps sizes in MiB to the share of hits, 0 to 1."""

    samples: int
    distinct: int
    shares: dict[int, float]

    @property
    def proposed(self) -> int:
        """The least size, in MiB, with all but a hundredth of the hits of the largest one; 0 where nothing repeats."""
        most = max(self.shares.values())
        return next(size for size, share in self.shares.items() if share >= (1 - SPARED) * most) if most else 0


def repetition(keys: Sequence[bytes], entry_bytes: int) -> Repetition:
    """Of requests by their keys, whose answers take ``entry_bytes`` each in a cache that forgets what was not asked for
    the longest, for sizes from 1 MiB, each twice the one before, to the first that holds all."""
    distances, distinct = _distances(keys), len(set(keys))
    shares, size = {}, 1
    while True:
        room = size * MEBIBYTE // entry_bytes
        shares[size] = bisect_right(distances, room - 1) / len(keys)
        if room >= distinct:
            return Repetition(samples=len(keys), distinct=distinct, shares=shares)
        size *= 2


def _distances(keys: Sequence[bytes]) -> list[int]:
    """Of each key that came before: how many others came since. In rising order."""
    last: dict[bytes, int] = {}
    newest: list[int] = []
    found: list[int] = []
    for now, key in enumerate(keys):
        if (before := last.get(key)) is not None:
            place = bisect_right(newest, before)
            insort(found, len(newest) - place)
            del newest[place - 1]
        newest.append(now)
        last[key] = now
    return found


def read_keys(path: Path) -> list[bytes]:
    """One for each sample. Raises :class:`OSError` and :class:`ValueError`."""
    if path.suffix == ".jsonl":
        return [_key(line) for line in path.read_bytes().splitlines() if line.strip()]
    with np.load(path, allow_pickle=False) as arrays:
        columns = [arrays[name] for name in sorted(arrays.files)]
    if not columns or len({len(column) for column in columns}) != 1:
        raise ValueError(f"{path} does not have arrays of one length, a sample a row")
    return [_key(b"".join(np.ascontiguousarray(column[row]).tobytes() for column in columns))
            for row in range(len(columns[0]))]


def _key(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0, or 2 where FILE cannot be read or has nothing."""
    parser = argparse.ArgumentParser(prog="python3 -m enginewright_builder.repetition", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="samples of requests, .npz or .jsonl")
    parser.add_argument("--answer-bytes", type=int, required=True, metavar="N",
                        help="size of the answer to one request: a row of 384 FP32 numbers has 1536")
    options = parser.parse_args(arguments)
    try:
        keys = read_keys(options.file)
        if not keys:
            raise ValueError(f"{options.file} has no samples")
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    found = repetition(keys, max(1, options.answer_bytes) + OVERHEAD_BYTES)
    print(f"{found.samples:,} requests, {found.distinct:,} different ones")
    for size, share in found.shares.items():
        print(f"{size:6,} MiB  {share:6.1%} hits at least")
    print(f"proposed: sizeMebibytes: {found.proposed}" if found.proposed else "nothing repeats: no cache is proposed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
