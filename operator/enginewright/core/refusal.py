"""A spec that makes no sense: nothing is done, and all that was said stands but for what is said of that."""

from __future__ import annotations

from enginewright.core import conditions
from enginewright.core.conditions import Verdict
from enginewright.core.events import transitions
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.plan import Plan


def refused(obj: ObjectView, observed: Observed, verdicts: tuple[Verdict, ...]) -> Plan:
    before = {**obj.status, "summary": obj.status.get("summary") or {}}
    status = conditions.refused(obj.status, before, verdicts, obj.generation, observed.now)
    return Plan(events=transitions(obj.status.get("conditions"), verdicts),
                status={**status, "observedGeneration": obj.generation})
