"""What goes on beside the builds of the ladder: a process of each engine at a time, or a few where the engine says so
and the machine has the CPUs, for the most promising of its trials that have such work, and then for the next.

Only where no other work suffers: on a GPU, whose builds leave most CPUs idle, with CPUs and memory to spare. It stands
still while candidates are timed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from enginewright_builder.competition.agenda import Plan
from enginewright_builder.competition.attempt import Workshop
from enginewright_builder.engines.base import Beside, Foresighted, Rung
from enginewright_builder.system import available_cpus, free_memory_bytes

log = logging.getLogger(__name__)

# Half of them are left to the builds: TensorRT's own work on the CPU is one thread's, PyTorch's compiler uses all.
LEAST_CPUS = 8
# ModelOpt holds the graph several times, and what calibration collects of each activation.
LEAST_MEMORY_BYTES, MEMORY_TIMES_GRAPH = 8 << 30, 8
# On half of the CPUs and without the GPU it takes longer than alone.
SLOWER = 1.5
# Between two looks at whether a process has ended: builds tell of their progress more often.
LOOK_SECONDS = 1.0
# What takes longer than was expected takes longer still: this part of what it has taken. It was 2 s until ViT's last
# trial waited for its graph, and took 109 s (product-four.json).
LONGER = 0.25


@dataclass
class Foresight:
    workshop: Workshop
    clock: Callable[[], float] = time.monotonic
    cpus: Callable[[], int] = available_cpus
    memory: Callable[[], int] = free_memory_bytes
    _begun: dict[str, tuple[Rung, Beside, float]] = field(default_factory=dict)
    _plans: Sequence[Plan] = ()
    _looked: float = -math.inf

    def able(self, rung: Rung) -> bool:
        engine = self.workshop.engine(rung)
        return isinstance(engine, Foresighted) and engine.foresees(rung)

    def prepare(self, plans: Sequence[Plan]) -> None:
        """Begins with the first of ``plans`` of each engine; :meth:`go_on` with those that follow."""
        self._plans, self._looked = plans, -math.inf
        self.go_on()

    def go_on(self) -> None:
        """Begins for each engine the next of the plans for which there is something to do, as long as no more of that
        engine is being done than may be at a time. May be called as often as one likes, from one thread at a time."""
        if self.clock() - self._looked < LOOK_SECONDS:
            return
        self._looked = self.clock()
        for plan in self._plans:
            engine, name = self.workshop.engine(plan.rung), plan.rung.name
            if name in self._begun or not isinstance(engine, Foresighted):
                continue
            if len(self._running(plan.rung.backend)) >= engine.at_a_time(self.cpus()):
                continue
            if not self._room():
                return
            try:
                begun = engine.begin(plan.rung, self.workshop.model, self.workshop.context)
            except Exception as error:  # it only helps: the build itself tells what is wrong
                log.warning("nothing could be prepared for %s", plan.name, exc_info=error)
                continue
            if begun is not None:
                self._begun[name] = plan.rung, begun, self.clock()

    @property
    def begun(self) -> frozenset[str]:
        return frozenset(self._begun)

    def graph_left(self, backend: str, precision: str, usual: float) -> float | None:
        """Seconds until the graph that was begun for them is done, where it usually takes ``usual`` by itself; None
        where none was."""
        for rung, one, since in self._begun.values():
            if (rung.backend, rung.precision) == (backend, precision) and not one.makes_engine:
                return self._left(one, since, usual)
        return None

    def engine_left(self, rung: Rung, usual: float) -> float | None:
        """The same of a rung's whole engine; None also where that could not be made."""
        _, one, since = self._begun.get(rung.name, (rung, None, 0.0))
        return self._left(one, since, usual) if one and one.makes_engine and (one.running or one.made) else None

    def made(self, tried: Collection[str]) -> int:
        """How many engines are there that were not ``tried`` yet."""
        return sum(one.makes_engine and one.made for name, (_, one, _) in self._begun.items() if name not in tried)

    def unfinished(self, rung: Rung) -> str:
        """Words for how long a rung's engine has been made so far; empty where it was not begun or is done."""
        _, one, since = self._begun.get(rung.name, (rung, None, 0.0))
        if one is None or not one.makes_engine or not one.running:
            return ""
        return f"not ready after {self.clock() - since:.0f} s beside the builds"

    def _running(self, backend: str = "") -> list[Beside]:
        """Of that engine, or of all."""
        return [one for rung, one, _ in self._begun.values() if one.running and backend in ("", rung.backend)]

    def _left(self, one: Beside, since: float, usual: float) -> float:
        spent = self.clock() - since
        return max(usual * SLOWER - spent, LONGER * spent) if one.running else 0.0

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Stands still meanwhile."""
        running = self._running()
        for one in running:
            one.pause()
        try:
            yield
        finally:
            for one in running:
                one.resume()

    def cancel(self) -> None:
        self._plans = ()
        for _, one, _ in self._begun.values():
            one.cancel()

    def _room(self) -> bool:
        context = self.workshop.context
        if context.device.accelerator != "gpu" or self.cpus() < LEAST_CPUS:
            return False
        each = max(LEAST_MEMORY_BYTES, MEMORY_TIMES_GRAPH * self.workshop.model.size_bytes)
        return self.memory() >= each * (1 + len(self._running()))  # what was just begun has taken none yet
