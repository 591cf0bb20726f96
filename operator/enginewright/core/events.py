"""Events about the object: one for all good news of a pass, one for each thing that is wrong, none for what merely goes
on. Each costs the apiserver an object, and the conditions have the same words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from enginewright.core.conditions import Verdict, find
from enginewright.core.plan import Event
from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import DecisionStatus
from enginewright_builder.contract import printable

# What ``events.k8s.io`` allows an event's note, in bytes.
NOTE_LIMIT = 1024

# In the order of the way from source to traffic.
ACTIONS = {
    Condition.SOURCE_RESOLVED: "Resolve",
    Condition.ENGINE_BUILT: "Build",
    Condition.ACCURACY_VERIFIED: "Verify",
    Condition.OBJECTIVE_MET: "Measure",
    Condition.ROLLOUT_COMPLETE: "Rollout",
    Condition.READY: "Serve",
    Condition.AVAILABLE: "Serve",
    Condition.SCALING_ACTIVE: "Scale",
    Condition.QUALITY_HELD: "Compare",
    Condition.THROUGHPUT_HELD: "Compare",
}
# Whose reason the event for several pieces of good news has: what people look for, the most wanted first.
LEADING = (Condition.READY, Condition.ENGINE_BUILT, Condition.ROLLOUT_COMPLETE)
# Said by another condition's event, or no news.
QUIET = frozenset(
    {
        Reason.WAITING_FOR_SOURCE,
        Reason.WAITING_FOR_ENGINE,
        Reason.NO_OBJECTIVE,
        Reason.MANUAL,
        Reason.STEADY,
        Reason.HOLDING,
        Reason.SCALING,
        Reason.BUILD_PENDING,
        Reason.SUSPENDED,
        Reason.MEASURING,
        Reason.UNDECIDED,
        Reason.NOT_MEASURED,
        Reason.NOT_COMPARABLE,
    }
)
# Not True, yet nothing is wrong.
UNDER_WAY = frozenset(
    {
        Reason.SUSPENDED,
        Reason.RESOLVING,
        Reason.WAITING_FOR_ENGINE,
        Reason.BUILD_PENDING,
        Reason.BUILDING,
        Reason.WAITING_FOR_QUEUE,
        Reason.PROGRESSING,
        Reason.ANALYSING,
        Reason.WAITING_FOR_REPLICAS,
        Reason.WAITING_FOR_SAMPLES,
        Reason.WAITING_FOR_PROMOTION,
        Reason.WAITING_FOR_CLASSES,
        Reason.DRAINING,
        Reason.PINNED,
        Reason.TARGET_CHANGED,
        Reason.BATCH_RUNNING,
    }
)


def transitions(old: object, verdicts: Iterable[Verdict]) -> tuple[Event, ...]:
    """What has another status or reason than ``old`` says; two of the same reason count once. Of the good news the most
    wanted gives the event its reason, and the note names the reason of each other, so that none is lost to who looks
    for it."""
    news: dict[tuple[str, str], Verdict] = {}
    for verdict in verdicts:
        if _is_news(find(old, verdict.type), verdict):
            news.setdefault((verdict.status, verdict.reason), verdict)
    wrong = tuple(_event("Warning", verdict) for verdict in news.values() if _is_wrong(verdict))
    fine = [verdict for verdict in news.values() if not _is_wrong(verdict)]
    if not fine:
        return wrong
    lead = min(fine, key=lambda verdict: LEADING.index(verdict.type) if verdict.type in LEADING else len(LEADING))
    others = (f"{verdict.reason}: {verdict.message}" for verdict in fine if verdict is not lead)
    return _event("Normal", lead, *others), *wrong


def decision_event(decision: DecisionStatus) -> Event:
    note = f"From {decision.from_} to {decision.to} replicas: {decision.reason}"
    return Event(type="Normal", reason=Reason.SCALING, action=ACTIONS[Condition.SCALING_ACTIVE], note=shorten(note))


def shorten(note: str) -> str:
    """At most :data:`NOTE_LIMIT` bytes of UTF-8, never half a character, and none that a terminal acts on."""
    note = printable(note)
    raw = note.encode()
    if len(raw) <= NOTE_LIMIT:
        return note
    return raw[: NOTE_LIMIT - len("…".encode())].decode(errors="ignore") + "…"


def _is_news(before: Mapping[str, Any], verdict: Verdict) -> bool:
    if verdict.reason in QUIET:
        return False
    if (before.get("status"), before.get("reason")) == (verdict.status, verdict.reason):
        return False
    # The condition that is in the way says why it is not ready; that nothing serves yet is no news.
    if verdict.type == Condition.READY:
        return verdict.ok or verdict.reason in (Reason.INVALID_SPEC, Reason.BATCH_FAILED)
    # Which revision answers is the rollout's news; this one's is that a revision does, or none any more.
    if verdict.type == Condition.AVAILABLE:
        return verdict.status != before.get("status") and (verdict.ok or before.get("status") == "True")
    return True


def _is_wrong(verdict: Verdict) -> bool:
    return verdict.status == "False" and verdict.reason not in UNDER_WAY


def _event(kind: Literal["Normal", "Warning"], verdict: Verdict, *others: str) -> Event:
    note = shorten(" ".join((verdict.message, *others)))
    return Event(type=kind, reason=str(verdict.reason), action=ACTIONS[verdict.type], note=note)
