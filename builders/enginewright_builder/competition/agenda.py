"""What is left to try in a build, and which of it comes next. Pure: :mod:`ascent` asks it again after each trial.

Trials are all rungs that were asked for, the engines tuned from those that pass, and refused ones with their worst
layers kept precise. :mod:`promise` says what each could gain. What holds whatever it says:

* As long as nothing passes, an engine that was made beside the first trial follows it, and then the cheapest rung in
  full precision, which comes first on a CPU, where it takes seconds: so there is something to ship, however little time
  is left.
* What no longer fits into the time is built quickly, by an engine that can, if that fits.
* A rung that was asked for and promises nothing is tried at last, as long as there is time; a tuned or mended one is
  not, and neither is an unrequested one, once something passes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from enginewright_builder.competition.cost import QUICK, Costs
from enginewright_builder.competition.experience import Experience
from enginewright_builder.competition.promise import Known, Outlook, Promise, Trial
from enginewright_builder.engines.base import Rung, quickly

# What passes wherever anything does, and is what the source is.
SAFE = "fp32"
# Engines whose builds take seconds before those that take a minute.
BUILD_COST = {"onnxruntime": 0, "tensorrt": 1, "torch": 2}
# Tuned engines that could bring less are no trial, and are not named: 1 %.
WORTH_NAMING = 1.01
# And no more than so many: status and report have little room.
NAMED = 4
# A full build is begun only if so many times what it is expected to take is left. DeepLabV3's INT8 for every batch was
# expected to fit into 129 s, was stopped after 122, and left FP16 alone, 1.9 times slower at batch 1 (four H200s).
MARGIN = 1.25


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A rung to try. ``wanted`` is False for one that is only to be offered, ``kept`` as in the candidate that it is
    tuned from. ``mends`` names a refused candidate, whose worst layers are still to be found. ``of`` names the
    candidate for every batch that it is tuned from."""

    rung: Rung
    wanted: bool = True
    kept: tuple[str, ...] = ()
    mends: str = ""
    of: str = ""

    @property
    def name(self) -> str:
        """As its candidate is named; of one that mends, before anybody knows how many layers that takes."""
        layers = f"{len(self.kept)} layer{'s' if len(self.kept) > 1 else ''}" if self.kept else ""
        layers = "the worst layers" if self.mends else layers
        return self.rung.name + (f" (kept {layers} in higher precision)" if layers else "")


@dataclass(frozen=True, kw_only=True)
class Stand:
    """How far a build is. ``tried`` are the names of all trials so far, ``refused`` of those that the gate refused and
    that could be mended. ``seconds`` are left for trials, ``left`` with what is kept for what follows them."""

    known: Known
    seconds: float
    left: float = float("inf")
    tried: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()


@dataclass
class Agenda:
    """``plans`` are the rungs that were asked for; ``tuned`` are the plans tuned from a candidate, by its name."""

    plans: Sequence[Plan]
    experience: Experience
    costs: Costs
    tuned: dict[str, list[Plan]] = field(default_factory=dict)

    def next(self, stand: Stand) -> Plan | None:
        """The next trial; None where nothing that is left fits into the time or is worth it."""
        plans = self._fitting(stand)
        if stand.left <= 0:
            return None
        if not stand.known.passing and (sure := self._made(stand, plans) or self._safe(stand, plans)):
            return sure
        outlook = self._outlook(plans, stand)
        # The first may take of what is kept for later: the cheapest, which always fits, is the slowest.
        if chosen := outlook.choose(stand.seconds if stand.tried else stand.left):
            return plans[chosen[0].name]
        worth = {one.trial.name: one.gain / max(one.trial.seconds, 1.0) for one in outlook.promises()
                 if not (plans[one.trial.name].of or plans[one.trial.name].mends)
                 and (one.trial.seconds <= stand.seconds or not stand.tried)}
        if worth:  # the first is begun as long as there is any time
            return plans[max(worth, key=lambda name: worth[name])]
        return next((plan for plan in plans.values() if not plan.wanted
                     and self._trial(plan, stand).seconds <= stand.seconds), None)

    def seconds(self, plan: Plan, stand: Stand) -> float:
        """What it is expected to take."""
        return self._trial(plan, stand).seconds

    def ahead(self, stand: Stand, able: Callable[[Rung], bool], given: Collection[str]) -> list[Plan]:
        """What is worth preparing for, of those rungs that are ``able`` to be prepared, the most promising first. The
        ``given`` are being built or prepared already. An engine's other precisions come last: they are needed if the
        gate refuses the first, and there is time for them then. Before them come the engines tuned from what is
        prepared, whatever they promise: two builds of MobileViT prepared a package in BF16 beside one in FP16, and had
        no time for those for single batches, which are 15 % faster."""
        plans = {name: plan for name, plan in self._open(stand).items()
                 if name in given or (able(plan.rung) and not plan.mends)}
        found = [plans[one.name] for one in self._outlook(plans, stand).order(given)]
        precisions = {plan.rung.backend: plan.rung.precision for plan in reversed(found)}
        precisions |= {plan.rung.backend: plan.rung.precision for name, plan in plans.items() if name in given}
        begun = {*given, *(plan.name for plan in found)}
        found += [plan for name, plan in plans.items() if plan.of in begun and name not in begun]
        return sorted(found, key=lambda plan: plan.rung.precision != precisions[plan.rung.backend])

    def left(self, stand: Stand) -> list[tuple[Plan, Promise]]:
        """What was not tried, with what it could bring: all that was asked for, and the tuned ones that could bring
        most."""
        plans = self._open(stand)
        trials = [self._trial(plan, stand) for plan in plans.values()]
        promises = Outlook(trials, stand.known, self.experience).promises()
        both = list(zip(plans.values(), promises, strict=True))
        tuned = [(plan, promise) for plan, promise in both if (plan.of or plan.mends) and not promise.trial.needs
                 and promise.factor >= WORTH_NAMING]
        return [*((plan, promise) for plan, promise in both if not (plan.of or plan.mends)),
                *sorted(tuned, key=lambda one: -one[1].gain)[:NAMED]]

    def _outlook(self, plans: Mapping[str, Plan], stand: Stand) -> Outlook:
        """On those that were asked for."""
        return Outlook([self._trial(plan, stand) for plan in plans.values() if plan.wanted], stand.known,
                       self.experience)

    def _open(self, stand: Stand) -> dict[str, Plan]:
        """By name: what may be tried now, and what may be once what it is tuned from passes."""
        found = [plan for plan in self.plans if not plan.rung.unavailable and (plan.wanted or not stand.known.passing)]
        for name, plans in self.tuned.items():
            if _passes(name, stand) or name not in stand.tried:
                found += plans
        for plan in self.plans:
            mended = Plan(rung=plan.rung, mends=plan.name)
            if plan.name in stand.refused and mended.name not in stand.tried:
                found += [mended, *(replace(one, mends=plan.name, of=mended.name)
                                    for one in self.tuned.get(plan.name, ()))]
        return {plan.name: plan for plan in found if plan.name not in stand.tried}

    def _fitting(self, stand: Stand) -> dict[str, Plan]:
        """What is open; in place of what would take longer than is left, its quick build where that would not."""
        found = []
        for plan in self._open(stand).values():
            quick = replace(plan, rung=replace(plan.rung, quick=True))
            late = plan.rung.backend in QUICK and not plan.mends and MARGIN * self.seconds(plan, stand) > stand.seconds
            fits = late and quick.name not in stand.tried and self.seconds(quick, stand) <= stand.seconds
            found.append(quick if fits else plan)
        return {plan.name: plan for plan in found}

    def _made(self, stand: Stand, plans: Mapping[str, Plan]) -> Plan | None:
        """The most promising of those whose engines for every batch are there, and only to be loaded and gated."""
        made = {name: plan for name, plan in plans.items()
                if not (plan.of or plan.mends) and self.costs.made(plan.rung)}
        promises = self._outlook(made, stand).promises()
        return made[max(promises, key=lambda one: one.gain).trial.name] if promises else None

    def _safe(self, stand: Stand, plans: Mapping[str, Plan]) -> Plan | None:
        """The cheapest in full precision: second at the latest, but for what is made."""
        if not stand.tried and self.experience.accelerator != "cpu":
            return None
        safe = [plan for plan in plans.values() if plan.wanted and plan.rung.precision == SAFE and not plan.of]
        if any(plan.wanted and plan.rung.precision == SAFE and plan.name in stand.tried for plan in self.plans):
            return None
        last = max(BUILD_COST.values())
        return min(safe, key=lambda plan: BUILD_COST.get(plan.rung.backend, last), default=None)

    def _trial(self, plan: Plan, stand: Stand) -> Trial:
        batches = stand.known.batches
        waits = bool(plan.of) and not _passes(plan.of, stand)
        return Trial(name=plan.name, whole=plan.of or f"{plan.rung.backend} {plan.rung.precision}",
                     covers=frozenset(batch for batch in batches if plan.rung.covers(batch)),
                     seconds=self.costs.expected(plan.rung, plan.kept, new_graph=bool(plan.mends and not plan.of)),
                     tuned=tuple(one.best for one in plan.rung.ranges), quick=plan.rung.quick, mends=plan.mends,
                     needs=plan.of if waits else "")


def _passes(name: str, stand: Stand) -> bool:
    """Whether the engine for every batch passes, be it a quick one."""
    return name in stand.known.passing or quickly(name) in stand.known.passing
