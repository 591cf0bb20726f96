"""The order of trials replayed on the benchmarked models: how far what ships after a budget is from the best of all.

Each model is judged by what the *other* models tell: its own rows are left out of the table. A candidate's times and
seconds are those that were measured; of one that was not measured it is unknown whether it is faster, so it costs its
usual time and gains nothing: as a rung for every batch it is a little slower than the anchor, tuned as fast as untuned.
But TensorRT's engine for batch 1 gained at each of the five models that it was measured at, and gains as much as at the
least of them; one with a profile for each batch is as fast as the single ones, as it was but for one batch of a model.
A quick engine takes the part of the full one's seconds, and loses the speed, that the builder expects.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from enginewright_builder.competition.agenda import Agenda, Plan, Stand
from enginewright_builder.competition.cost import CACHED, LOAD_SECONDS, Costs, quick_share
from enginewright_builder.competition.experience import GATE_SECONDS, Experience, experience
from enginewright_builder.competition.foresight import SLOWER
from enginewright_builder.competition.promise import QUICK_LOG, Known
from enginewright_builder.engines.base import BatchRange, Rung, quickly
from enginewright_builder.engines.buckets import bucket_ranges
from enginewright_builder.engines.torch_aoti import TorchEngine
from enginewright_builder.measure.look import Look
from tables import head
from trial_order.fixed import FixedOrder

BENCHMARKS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
PAGE = BENCHMARKS / "trial-order.md"
BATCHES = (1, 8, 32)
BUDGETS = (150, 300, 900)
ZONE = 1.03
COMPILED_BESIDE, QUANTISED_BESIDE = "torch", ("tensorrt", "int8")
CPUS = 16
AT_A_TIME = TorchEngine().at_a_time(CPUS)
# Of a rung that was not measured, where the anchor takes 1 ms.
NO_GAIN = 1.05
# EfficientNet's FP16: 0.540 ms for 0.632.
LEAST_GAIN_AT_1 = 0.853
# Before the ladder the source is opened and exported, as long as product-single.json says, and run on the evaluation
# data; after it come race, sweep and proof: 39 to 55 s in product-single.json.
BEFORE, ASK_SECONDS, AFTER_SECONDS = ("resolve", "fetch", "export"), 4.0, 50.0
PRECISIONS = {"tensorrt": ("fp32", "tf32", "bf16", "fp16", "fp8", "int8"), "torch": ("fp32", "tf32", "bf16", "fp16"),
              "onnxruntime": ("fp32", "tf32", "fp16")}


@dataclass(frozen=True, kw_only=True)
class Replay:
    """``regret`` is the shipped time over the best of all accurate candidates' by batch; ``tried`` in order."""

    model: str
    budget: float
    tried: tuple[str, ...]
    regret: Mapping[int, float]
    seconds: float


class World:
    """One benchmarked model as it truly is."""

    def __init__(self, model: str, table: Experience) -> None:
        self.model, self.record = model, table.models[model]
        self.look = Look(**self.record["look"])
        self.guesses = table.without(model)

    def measured(self, name: str) -> dict[int, float]:
        """Milliseconds by batch, of the anchor's 1 ms; empty where it was not measured."""
        log = [0.0] * len(BATCHES) if name == self.guesses.anchor else self.record["log"].get(name, ())
        return {batch: math.exp(value) for batch, value in zip(BATCHES, log, strict=False) if value is not None}

    def times(self, plan: Plan) -> dict[int, float]:
        """Also of what was not measured, which gains nothing."""
        if plan.rung.quick:
            full = self.times(replace(plan, rung=replace(plan.rung, quick=False)))
            return {batch: time * math.exp(QUICK_LOG) for batch, time in full.items()}
        found, whole = self.measured(plan.name), self.measured(plan.of) if plan.of else {}
        alone = {batch: self.measured(f"{plan.of} @{batch}").get(batch) for batch in BATCHES}
        if plan.rung.backend == "tensorrt" and BATCHES[0] in whole:
            whole = {**whole, BATCHES[0]: whole[BATCHES[0]] * LEAST_GAIN_AT_1}
        return {batch: found.get(batch) or alone[batch] or whole.get(batch) or NO_GAIN for batch in BATCHES
                if plan.rung.covers(batch)}

    def passes(self, name: str) -> bool:
        return bool(self.record["passes"].get(name.partition(" @")[0].removesuffix(quickly("")), True))

    def best(self) -> dict[int, float]:
        names = [name for name in (*self.record["log"], self.guesses.anchor)
                 if not name.startswith("eager") and self.passes(name)]
        return {batch: min(times[batch] for name in names if batch in (times := self.measured(name)))
                for batch in BATCHES}

    def seconds(self, rung: Rung, timed: frozenset[int] = frozenset()) -> tuple[float, float]:
        """Of its graph, and of its build, where the timing cache has the engines for the batches ``timed`` alone."""
        if rung.quick:
            writing, whole = self.seconds(replace(rung, quick=False), timed)
            return writing, whole * quick_share(rung.backend, self.look)
        known, tuned = self.record["seconds"], [one.best for one in rung.ranges]
        graph = known.get(f"graph {rung.precision}") if rung.backend == "tensorrt" else 0.0
        if graph is None:
            graph = self.guesses.graph_seconds(rung.backend, rung.precision, self.look)
        ones = known.get(f"{rung.backend} one", [None] * len(BATCHES))
        each = [ones[BATCHES.index(one)] for one in tuned] or [known.get(f"{rung.backend} wide")]
        share = [CACHED if one in timed else 1.0 for one in tuned] if len(tuned) > 1 else [1.0]
        build = None if None in each else sum(one * part for one, part in zip(each, share, strict=True))
        if build is None:
            usual = self.guesses.build_seconds(rung.backend, rung.precision, self.look, tuned=tuned)
            return graph, usual * self._pace()
        return graph, build + max(GATE_SECONDS, known.get("gate", 0.0))

    def _pace(self) -> float:
        """How many times as long as others' this model's engine for every batch took."""
        mine = self.record["seconds"].get("tensorrt wide")
        usual = self.guesses.build_seconds("tensorrt", "fp16", self.look) - self.guesses.gate_seconds(self.look)
        return mine / usual if mine else 1.0


@dataclass
class Beside:
    """What goes on beside the builds until ``clock``: INT8's graph, from when it was first asked for, and PyTorch's
    packages."""

    world: World
    clock: float
    overlap: bool
    graph_begun: float | None = None
    packages: dict[str, float] = field(default_factory=dict)  # by rung, when they are there

    def graph_left(self, backend: str, precision: str, usual: float) -> float | None:
        if not self.overlap or (backend, precision) != QUANTISED_BESIDE:
            return None
        self.graph_begun = self.clock if self.graph_begun is None else self.graph_begun
        taken = SLOWER * self.world.seconds(Rung(backend=backend, precision=precision))[0]
        return max(0.0, taken - (self.clock - self.graph_begun))

    def engine_left(self, rung: Rung, usual: float) -> float | None:
        return max(0.0, self.packages[rung.name] - self.clock) if rung.name in self.packages else None

    def go_on(self, agenda: Agenda, stand: Stand, following: str, seconds: float) -> None:
        """While the trial of that name takes so many seconds. Packages are begun in the order of their promise."""
        until = self.clock + seconds
        for one in agenda.ahead(stand, lambda rung: rung.backend == COMPILED_BESIDE, {following, *self.packages}):
            if not self.overlap or (free := self._free()) >= until:
                break
            self.packages[one.name] = free + SLOWER * self.world.seconds(one.rung)[1]
        self.clock = until

    def _free(self) -> float:
        """When the next package may be begun."""
        ends = sorted(self.packages.values())
        return max(self.clock, ends[-AT_A_TIME]) if len(ends) >= AT_A_TIME else self.clock


def plans() -> list[Plan]:
    return [Plan(rung=Rung(backend=backend, precision=precision)) for backend, names in PRECISIONS.items()
            for precision in names]


def tuned(plan: Plan) -> Iterator[Plan]:
    """As the engines' own ``specialised``."""
    ranges = bucket_ranges(BATCHES)
    each: list[tuple[BatchRange, ...]] = [(one,) for one in ranges]
    sets = {"tensorrt": [each[0], ranges, *each[1:]], "torch": each}.get(plan.rung.backend, [])
    for one in sets:
        yield Plan(rung=Rung(backend=plan.rung.backend, precision=plan.rung.precision, ranges=tuple(one)), of=plan.name)


def replay(model: str, budget: float, table: Experience | None = None, *, overlap: bool = True,
           order: type[Agenda] = Agenda) -> Replay:
    world = World(model, table or experience("gpu"))
    beside = Beside(world, before_seconds(model), overlap=overlap)
    costs = Costs(world.guesses, world.look, graph_left=beside.graph_left, engine_left=beside.engine_left)
    agenda = order(plans(), world.guesses, costs, {plan.name: list(tuned(plan)) for plan in plans()})
    tried: list[str] = []
    times: dict[str, dict[int, float]] = {}
    passing: set[str] = set()
    written: set[tuple[str, str]] = set()
    while True:
        known = Known(batches=BATCHES, look=world.look, times=times, passing=frozenset(passing))
        stand = Stand(known=known, seconds=budget - beside.clock - AFTER_SECONDS, left=budget - beside.clock,
                      tried=frozenset(tried))
        plan = agenda.next(stand)
        if plan is None:
            break
        of = (plan.rung.backend, plan.rung.precision)
        timed = frozenset(batch for batch in BATCHES if f"{plan.of} @{batch}" in tried)
        graph, build = world.seconds(plan.rung, timed)
        waiting = beside.engine_left(plan.rung, build)
        build = build if waiting is None else waiting + LOAD_SECONDS
        left = 0.0 if of in written else beside.graph_left(*of, graph)
        graph = graph if left is None else left
        written.add(of)
        beside.go_on(agenda, stand, plan.name, graph + build)
        if waiting is None:
            costs.record(plan.rung, (), graph + build, graph, built=True)
        tried.append(plan.name)
        times[plan.name] = world.times(plan)
        if world.passes(plan.name):
            passing.add(plan.name)
    best = world.best()
    shipped = {batch: min((times[name][batch] for name in passing if batch in times.get(name, {})),
                          default=math.inf) for batch in BATCHES}
    return Replay(model=model, budget=budget, tried=tuple(tried), seconds=beside.clock + AFTER_SECONDS,
                  regret={batch: shipped[batch] / best[batch] for batch in BATCHES})


@lru_cache
def before_seconds(model: str) -> float:
    product = json.loads((BENCHMARKS / "product-single.json").read_text(encoding="utf-8"))
    steps = next(one["steps"] for one in product["models"] if one["model"] == model)
    return ASK_SECONDS + sum(float(steps[step]) for step in BEFORE)


_HEAD = """# The order of trials, replayed

`PYTHONPATH=studies:hack:builders python -m trial_order replay` ([ADR 0031](../adr/0031-order-of-trials.md)). Each model
of [h200.json](h200.json) is predicted from the seven others. A figure is the time of what would ship over that of the
best accurate candidate that was ever measured, by batch; below 1 where an engine for batch 1 that was not measured is
taken to gain 15 %, the least that any gained. Any other candidate that was not measured costs its usual time and gains
nothing. A trial costs what it cost on an H100 ([trials.json](trials.json)); one that was not tried there costs what the
other models' did, times what this model took longer than they. As many seconds pass before the ladder as did in
[product-single.json](product-single.json), and 50 s after it.
"""

_FIXED = """## Beside a fixed order

The same trials in one order for all models: by engine (TensorRT, PyTorch, ONNX Runtime), then by precision (FP16, INT8,
BF16, FP8, TF32, FP32), each engine for every batch directly before those that are tuned from it, and nothing that is
not expected to fit. Budgets, costs, quick builds and the work beside the trials are the same; only what is predicted of
a model is not used.
"""


def replays(budget: float, order: type[Agenda] = Agenda) -> list[Replay]:
    """Of all models."""
    return [replay(model, budget, order=order) for model in experience("gpu").models]


def within(found: Sequence[Replay]) -> str:
    """How many models and batches come near to the best."""
    cells = [value for one in found for value in one.regret.values()]
    return f"{sum(value <= ZONE for value in cells)} of {len(cells)}"


def worst(found: Sequence[Replay]) -> float:
    return max(value for one in found for value in one.regret.values())


def beside_fixed(ours: Mapping[int, Sequence[Replay]], fixed: Mapping[int, Sequence[Replay]]) -> list[str]:
    """What the predictions are worth, in Markdown."""
    rows = [(f"{budget} s", within(ours[budget]), f"{worst(ours[budget]):.2f}", within(fixed[budget]),
             f"{worst(fixed[budget]):.2f}") for budget in ours]
    return [_FIXED, *head("budget", "within 3 %", "worst", "within 3 %, fixed order", "worst, fixed order"),
            *(f"| {' | '.join(one)} |" for one in rows), ""]


def page() -> str:
    """Beside a fixed order, and a table for each budget, in Markdown."""
    ours = {budget: replays(budget) for budget in BUDGETS}
    lines = [_HEAD, *beside_fixed(ours, {budget: replays(budget, FixedOrder) for budget in BUDGETS})]
    for budget, found in ours.items():
        lines += [f"## {budget} s: {within(found)} cells within 3 %", "",
                  *head("model", "batch 1", "8", "32", "seconds", "trials in order")]
        lines += [f"| {one.model} | " + " | ".join(f"{one.regret[batch]:.3f}" for batch in BATCHES)
                  + f" | {one.seconds:.0f} | {', '.join(one.tried)} |" for one in found]
        lines.append("")
    return "\n".join(lines)
