"""What goes on beside the builds of the ladder: one process of each engine at a time, for the most promising of its
trials that have such work.

Only where no other work suffers: on a GPU, whose builds leave most CPUs idle, with CPUs and memory to spare. It stands
still while candidates are timed.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from enginewright_builder.competition.agenda import Plan
from enginewright_builder.competition.attempt import Workshop
from enginewright_builder.engines.base import Beside, Foresighted
from enginewright_builder.system import available_cpus, free_memory_bytes

log = logging.getLogger(__name__)

# Half of them are left to the builds: TensorRT's own work on the CPU is one thread's, PyTorch's compiler uses all.
LEAST_CPUS = 8
# ModelOpt holds the graph several times, and what calibration collects of each activation.
LEAST_MEMORY_BYTES, MEMORY_TIMES_GRAPH = 8 << 30, 8
# On half of the CPUs and without the GPU it takes longer than alone.
SLOWER = 1.5
# What takes longer than was expected takes longer still: this part of what it has taken. It was 2 s until ViT's last
# trial waited for its graph, and took 109 s (product-four.json).
LONGER = 0.25


@dataclass
class Foresight:
    workshop: Workshop
    clock: Callable[[], float] = time.monotonic
    cpus: Callable[[], int] = available_cpus
    memory: Callable[[], int] = free_memory_bytes
    _begun: dict[tuple[str, str], tuple[Beside, float]] = field(default_factory=dict)

    def prepare(self, plans: Sequence[Plan]) -> None:
        """Begins for each engine the first of ``plans`` for which there is something to do, if nothing else of that
        engine is being done."""
        for plan in plans:
            engine, of = self.workshop.engine(plan.rung), (plan.rung.backend, plan.rung.precision)
            if of in self._begun or self._busy(plan.rung.backend) or not isinstance(engine, Foresighted):
                continue
            if not self._room():
                return
            try:
                begun = engine.begin(plan.rung, self.workshop.model, self.workshop.context)
            except Exception as error:  # it only helps: the build itself tells what is wrong
                log.warning("nothing could be prepared for %s", plan.name, exc_info=error)
                continue
            if begun is not None:
                self._begun[of] = begun, self.clock()

    def graph_left(self, backend: str, precision: str, usual: float) -> float | None:
        """Seconds until the graph that was begun for them is done, where it usually takes ``usual`` by itself; None
        where none was."""
        return self._left(backend, precision, usual, engine=False)

    def engine_left(self, backend: str, precision: str, usual: float) -> float | None:
        """The same of a whole engine."""
        return self._left(backend, precision, usual, engine=True)

    def _busy(self, backend: str) -> bool:
        return any(one.running for (of, _), (one, _) in self._begun.items() if of == backend)

    def _left(self, backend: str, precision: str, usual: float, *, engine: bool) -> float | None:
        one, since = self._begun.get((backend, precision), (None, 0.0))
        if one is None or one.makes_engine != engine:
            return None
        spent = self.clock() - since
        return max(usual * SLOWER - spent, LONGER * spent) if one.running else 0.0

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Stands still meanwhile."""
        running = [one for one, _ in self._begun.values() if one.running]
        for one in running:
            one.pause()
        try:
            yield
        finally:
            for one in running:
                one.resume()

    def cancel(self) -> None:
        for one, _ in self._begun.values():
            one.cancel()

    def _room(self) -> bool:
        context = self.workshop.context
        if context.device.accelerator != "gpu" or self.cpus() < LEAST_CPUS:
            return False
        folder = self.workshop.model.path.parent
        graph = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        return self.memory() >= max(LEAST_MEMORY_BYTES, MEMORY_TIMES_GRAPH * graph)
