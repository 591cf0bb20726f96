"""What the search may choose from: every configuration under every load, as a finite list."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from enginewright_builder.contract import BatchingRequest, InstancesRequest, ServingChoice
from enginewright_builder.sweep.result import Point

# Microseconds, five times the one before: less than that apart, two delays differ by less than noise.
DELAYS_US = (0, 200, 1000, 5000)
# Instances that one GPU is tried with. More contexts share the same multiprocessors, each with its own memory.
MOST_GPU_INSTANCES = 4


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One measurement that could be made: a configuration with ``concurrency`` requests in flight."""

    serving: ServingChoice
    concurrency: int

    @classmethod
    def of(cls, point: Point) -> Trial:
        """The one that gave this point."""
        return cls(serving=point.serving, concurrency=point.concurrency)


@dataclass(frozen=True, kw_only=True)
class Space:
    """What may vary, each ascending. One value means that it is fixed.

    ``batch_sizes`` are maxima: a build has one, as Triton refuses what is above it and clients may send batches of all
    that the spec allows; recorded grids have several. Of sequences a request is one step, and 1, which joins none, may
    be better than joining them.
    """

    batch_sizes: tuple[int, ...]
    preferred_batch_sizes: tuple[int, ...]
    instances: tuple[int, ...]
    delays_us: tuple[int, ...]
    concurrencies: tuple[int, ...]

    @classmethod
    def of(cls, *, max_batch_size: int, batching: BatchingRequest, instances: InstancesRequest, cores: int,
           gpus: int, stepped: bool = False) -> Space:
        """What the user fixed is honoured. Delays only where there is a batch to form. ``stepped``: requests are steps
        of sequences."""
        counts = (instances.count,) if instances.count > 0 else doublings(MOST_GPU_INSTANCES if gpus else cores)
        if max_batch_size and batching.max_queue_delay_us >= 0:
            delays: tuple[int, ...] = (batching.max_queue_delay_us,)
        else:
            delays = DELAYS_US if max_batch_size > 1 else (0,)
        preferred = batching.preferred_batch_sizes if max_batch_size else ()
        sizes = (1, max_batch_size) if stepped and max_batch_size > 1 else (max_batch_size,)
        return cls(batch_sizes=sizes, preferred_batch_sizes=preferred, instances=counts, delays_us=delays,
                   concurrencies=doublings(max(4, 2 * max(1, max_batch_size) * counts[-1])))

    @property
    def max_batch_size(self) -> int:
        return self.batch_sizes[-1]

    def servings(self) -> list[ServingChoice]:
        """Every configuration. Where no batch forms (a maximum of 1 or 0) there is no request to wait for: one
        delay."""
        return [ServingChoice(max_batch_size=size, preferred_batch_sizes=tuple(
                                  one for one in self.preferred_batch_sizes if one <= size),
                              max_queue_delay_us=delay, instance_count=count)
                for count in self.instances for size in self.batch_sizes
                for delay in (self.delays_us if size > 1 else self.delays_us[:1])]

    def trials(self) -> list[Trial]:
        return [Trial(serving=serving, concurrency=concurrency)
                for serving in self.servings() for concurrency in self.concurrencies]

    def first(self, *, each_count: bool = False) -> list[Trial]:
        """Where a search starts: one request alone, which gives the service time, and every instance under a middling
        load, which gives what batching and instances make of it. With ``each_count`` fewer instances under that load
        as well: what those save does not follow from throughput."""
        alone = ServingChoice(max_batch_size=self.max_batch_size, preferred_batch_sizes=self.preferred_batch_sizes,
                              max_queue_delay_us=self.delays_us[0], instance_count=self.instances[0])
        counts = self.instances[::-1] if each_count else self.instances[-1:]
        middling = self.concurrencies[len(self.concurrencies) // 2]
        return [Trial(serving=alone, concurrency=self.concurrencies[0]),
                *(Trial(serving=dataclasses.replace(alone, instance_count=count), concurrency=middling)
                  for count in counts)]


def doublings(limit: int) -> tuple[int, ...]:
    """1, 2, 4, … and ``limit`` itself."""
    values = [1]
    while values[-1] * 2 <= limit:
        values.append(values[-1] * 2)
    if values[-1] != limit:
        values.append(limit)
    return tuple(values)
