"""Which revisions served or were tried, newest first, each with its evidence; and what is kept to go back to one.

Kept in status, bounded by ``spec.revisionHistoryLimit``. A revision that is promoted also leaves what it was made of in
a ConfigMap, before status says so; one that leaves the history takes it along.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from enginewright.core.conditions import timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.decide.target import Target
from enginewright.core.manifests import deployment_name, revision_configmap
from enginewright.core.observed import EngineRecord, KeptRevision
from enginewright.core.placement import Placement
from enginewright.core.plan import Action, Create, Delete
from enginewright.core.published import backend_of, gain_of, published
from enginewright.core.quantity import legible
from enginewright.core.request import server_image
from enginewright.core.status import AnalysisStatus, RevisionStatus, RolledBackStatus, RolloutStatus
from enginewright.core.step import Step
from enginewright.core.way_back import served
from enginewright_builder.contract import EngineSummary

Revisions = tuple[RevisionStatus, ...]


@dataclass(frozen=True, kw_only=True)
class HistoryResult:
    memory: Revisions
    actions: tuple[Action, ...] = ()


def remember(target: Target, memory: RolloutStatus) -> HistoryResult:
    """``memory`` is what is remembered of the target's rollout."""
    ctx, goal = target.ctx, target.engine
    entries, actions = ctx.memory.revisions, tuple[Action, ...]()
    complete = memory.step in (Step.COMPLETE, Step.ROLLED_BACK) and memory.stable == goal.revision
    if complete and served(entries) != goal.revision and goal.record and goal.placement:
        entries = _promote(ctx, entries, goal, goal.record, _figures(memory, Step.COMPLETE))
        actions = _keep(ctx, goal.revision, goal.placement, goal.record)
    if memory.rolled_back:
        entries = _roll_back(entries, target.asked, memory.rolled_back, _figures(memory, Step.ROLLED_BACK))
    bounded = _bound(entries, ctx, {memory.stable, memory.candidate, goal.revision})
    return HistoryResult(memory=bounded, actions=actions + _forget(ctx, entries, bounded))


def _figures(memory: RolloutStatus, step: Step) -> AnalysisStatus | None:
    """Those of the revision that took over, or of the one that was given up."""
    return memory.analysis if memory.step == step else None


def _keep(ctx: PassContext, revision: str, placement: Placement, record: EngineRecord) -> tuple[Action, ...]:
    """One that served before is kept already, as it was made then."""
    if any(entry.revision == revision and entry.promotion_time for entry in ctx.memory.revisions):
        return ()
    kept = KeptRevision(revision=revision, spec=ctx.obj.spec, image=server_image(ctx.spec, ctx.config),
                        placement=placement, outcome=replace(record.outcome, candidates=()))
    return (Create(manifest=revision_configmap(ctx.owner, kept), why="going back to it is to need no build"),)


def _promote(ctx: PassContext, entries: Revisions, goal: EngineResult, record: EngineRecord,
             analysis: AnalysisStatus | None) -> Revisions:
    now = timestamp(ctx.now)
    known = next((entry for entry in entries if entry.revision == goal.revision), None) or _entry(goal, record)
    newest = known.model_copy(update={"promotion_time": now, "outcome": "Serving", "reason": None, "message": None,
                                      "analysis": analysis or known.analysis, "end_time": None})
    return (newest, *(_superseded(entry, now) for entry in entries if entry.revision != goal.revision))


def _superseded(entry: RevisionStatus, now: str) -> RevisionStatus:
    if entry.outcome != "Serving":
        return entry
    return entry.model_copy(update={"outcome": "Superseded", "end_time": now})


def _roll_back(entries: Revisions, tried: EngineResult, given_up: RolledBackStatus,
               analysis: AnalysisStatus | None) -> Revisions:
    """Once for each time. One that had served before stays what may be gone back to."""
    if any((entry.revision, entry.end_time) == (given_up.revision, given_up.time) for entry in entries):
        return entries
    found = next((entry for entry in entries if entry.revision == given_up.revision), None)
    if found is None and tried.record and tried.revision == given_up.revision:
        found = _entry(tried, tried.record)
    if found is None or found.outcome == "Serving":
        return entries
    entry = found.model_copy(update={"outcome": "RolledBack", "reason": given_up.reason, "message": given_up.message,
                                     "analysis": analysis or found.analysis, "end_time": given_up.time})
    return (entry, *(other for other in entries if other.revision != given_up.revision))


def _entry(goal: EngineResult, record: EngineRecord) -> RevisionStatus:
    summary = published(record.outcome)
    entry = RevisionStatus(revision=goal.revision, fingerprint=record.fingerprint, outcome="RolledBack",
                           target=goal.target)
    if summary is None:
        return entry
    return entry.model_copy(update={
        "backend": backend_of(summary), "precision": summary.precision, "speedup": gain_of(summary),
        "p99_milliseconds": legible(summary.p99_ms) if isinstance(summary, EngineSummary) else None,
        "accuracy_low": legible(summary.accuracy_low)})


def _bound(entries: Revisions, ctx: PassContext, needed: set[str | None]) -> Revisions:
    """The limit counts old revisions: what serves or is on its way stays whatever it says. Those that never served
    leave first: any number of failed tries must leave what can be gone back to."""
    old = [entry for entry in entries if entry.outcome != "Serving" and entry.revision not in needed]
    stay = sorted(old, key=lambda entry: not entry.promotion_time)[:ctx.spec.revision_history_limit]
    return tuple(entry for entry in entries if entry not in old or entry in stay)


def _forget(ctx: PassContext, before: Revisions, after: Revisions) -> tuple[Action, ...]:
    stay = {entry.revision for entry in after}
    return tuple(
        Delete(api_version="v1", kind="ConfigMap", name=deployment_name(ctx.obj.name, entry.revision),
               why=f"revision {entry.revision} leaves the history")
        for entry in before if entry.revision not in stay and entry.promotion_time
    )
