"""One order of trials for all models, beside which the builder's own is judged: it predicts nothing of a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from enginewright_builder.competition.agenda import Agenda, Plan, Stand
from enginewright_builder.engines.base import Rung, quickly

# The engines and the precisions that won most often on the benchmarked models come first, for a strong rival.
BACKENDS = ("tensorrt", "torch", "onnxruntime")
PRECISIONS = ("fp16", "int8", "bf16", "fp8", "tf32", "fp32")


class FixedOrder(Agenda):
    """By engine and then by precision, each rung for every batch directly before what is tuned from it. Whatever is not
    expected to fit into the time is left out. Quick builds and work beside the trials are as the builder's own."""

    def next(self, stand: Stand) -> Plan | None:
        if stand.left <= 0:
            return None
        return next((plan for plan in self._ordered(stand)
                     if not stand.tried or self.seconds(plan, stand) <= stand.seconds), None)

    def ahead(self, stand: Stand, able: Callable[[Rung], bool], given: Collection[str]) -> list[Plan]:
        return [plan for plan in self._ordered(stand) if able(plan.rung) and plan.name not in given]

    def _ordered(self, stand: Stand) -> Iterator[Plan]:
        """What may be tried now."""
        plans = [plan for plan in self._fitting(stand).values() if not plan.mends
                 and (not plan.of or not {plan.of, quickly(plan.of)}.isdisjoint(stand.known.passing))]
        yield from sorted(plans, key=self._place)

    def _place(self, plan: Plan) -> tuple[int, int, bool]:
        return BACKENDS.index(plan.rung.backend), PRECISIONS.index(plan.rung.precision), bool(plan.of)
