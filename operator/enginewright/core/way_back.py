"""Which revisions there are to go back to, best first: for what the operator does by itself, what it advises, and what
``kubectl optimisedmodel`` tells and does."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from enginewright.core import labels
from enginewright.core.observed import ObjectView
from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import RevisionStatus, Status

Revisions = tuple[RevisionStatus, ...]
# What goes on being the current spec's after a way back. All else makes a revision, or its engine.
LIVE = ("replicas", "autoscaling", "rollout", "suspend", "revisionHistoryLimit")


def needs_kept(obj: ObjectView) -> bool:
    """Whether a pass may ask for what was kept of earlier revisions. The spec may be any rubbish."""
    rollout, quality = obj.spec.get("rollout"), obj.spec.get("quality")
    rollout = rollout if isinstance(rollout, dict) else {}
    recreate, asks = rollout.get("strategy") == "Recreate", rollout.get("autoPromote") is False
    drifting = isinstance(quality, dict) and quality.get("rollback") is True
    if labels.ROLLBACK_TO in obj.annotations or (recreate and asks):
        return True
    return (recreate or drifting) and bool(obj.status.get("revisions"))


def good_ones(revisions: Iterable[RevisionStatus], left: str, again: Collection[str] = ()) -> Revisions:
    """The one that served last, then those before it, newest first; without ``left``. Of those that were given up since
    only ``again``, which get another try."""
    found = (entry for entry in revisions
             if entry.promotion_time and (entry.outcome != "RolledBack" or entry.revision in again))
    others = [entry for entry in found if entry.revision != left]
    return tuple(sorted(others, key=lambda entry: entry.outcome != "Serving"))


def serves(revisions: Iterable[RevisionStatus]) -> RevisionStatus | None:
    """The one that serves; while another is rolled out, the one that did until then."""
    return next((entry for entry in revisions if entry.outcome == "Serving"), None)


def served(revisions: Iterable[RevisionStatus]) -> str:
    """The name of the one that :func:`serves`; empty where none does."""
    found = serves(revisions)
    return found.revision if found else ""


def way_back(status: Status) -> Revisions:
    """What to go back to where no revision is named: the first one. It leaves the revision that is being rolled
    out, or else the one that serves. One with an engine that has drifted is left out: it would answer alike again."""
    rollout = status.rollout
    drifted = _drifted(status)
    candidate = rollout.candidate if rollout else None
    return tuple(entry for entry in good_ones(status.revisions, candidate or served(status.revisions))
                 if entry.fingerprint not in drifted)


def _drifted(status: Status) -> set[str]:
    """Fingerprints: of what serves, as long as the condition says so, and of what was given up for it."""
    now = any(entry.type == Condition.QUALITY_HELD and entry.status == "False" for entry in status.conditions)
    return {entry.fingerprint for entry in status.revisions
            if entry.reason == Reason.QUALITY_DRIFTED or (now and entry.outcome == "Serving")}
