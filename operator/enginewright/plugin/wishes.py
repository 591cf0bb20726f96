"""What a verb asks for, as annotations to set or remove. Pure: raises :class:`WishError` before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core import labels
from enginewright.core.commands import RETRIES, kubectl, plugin
from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import RevisionStatus, Status, read_status
from enginewright.core.way_back import way_back

Annotations = dict[str, str | None]


class WishError(Exception):
    """It makes no sense for this object; for people."""


def promote(obj: Mapping[str, Any], revision: str = "") -> tuple[Annotations, str]:
    """Annotations and a sentence. ``revision`` defaults to the candidate."""
    name, status = _read(obj)
    candidate = status.rollout.candidate if status.rollout else None
    if not candidate or (status.rollout and candidate == status.rollout.stable):
        raise WishError(f"{name} has no revision that waits: nothing is being rolled out")
    if revision and revision != candidate:
        raise WishError(f"revision {revision} is not the candidate of {name}: that is {candidate}")
    return {labels.PROMOTE: candidate}, f"revision {candidate} of {name} is promoted"


def roll_back(obj: Mapping[str, Any], revision: str = "") -> tuple[Annotations, str]:
    """Annotations and a sentence. ``revision`` may be a beginning of one, and defaults to the one that
    :func:`~enginewright.plugin.words.explain` tells."""
    name, status = _read(obj)
    if status.classes:
        raise WishError(f"{name} is a fleet: apply its earlier spec, whose engines the store has, or name the object "
                        f"of one class, to hold back that one: {', '.join(row.model for row in status.classes)}")
    goal = _named(name, status, revision) if revision else _best(name, status)
    return {labels.ROLLBACK_TO: goal.revision}, f"{name} goes back to revision {goal.revision}, without a build"


def revisions(obj: Mapping[str, Any]) -> list[str]:
    """That :func:`roll_back` may be asked for."""
    return [entry.revision for entry in _kept(_read(obj)[1])]


def stable(obj: Mapping[str, Any]) -> str:
    """The revision that serves, as the last one that was proven to."""
    name, status = _read(obj)
    found = status.rollout.stable if status.rollout else None
    if not found:
        explain = kubectl(f"optimisedmodel explain {name}", obj["metadata"].get("namespace") or "")
        raise WishError(f"{name} serves no engine yet; {explain}")
    return found


def live(obj: Mapping[str, Any]) -> list[str]:
    """Revisions that have replicas, the proven one first. That :func:`serving` may be asked for."""
    rollout = _read(obj)[1].rollout
    return list(dict.fromkeys(filter(None, (rollout.stable, rollout.candidate)))) if rollout else []


def serving(obj: Mapping[str, Any], revision: str = "") -> str:
    """The revision to export. ``revision`` may be a beginning of one; empty, there has to be one alone."""
    name, status = _read(obj)
    if status.classes:
        raise WishError(f"{name} is a fleet: name the object of one class: "
                        f"{', '.join(row.model for row in status.classes)}")
    proven, found = stable(obj), live(obj)
    if not revision and len(found) > 1:
        raise WishError(f"{name} is being rolled out: name the revision behind {name}, {proven}, which is proven, "
                        f"or {found[1]}, which is not yet")
    return _one_of(name, found, revision)


def reported(obj: Mapping[str, Any], revision: str = "") -> str:
    """The revision that a report is of. ``revision`` may be a beginning of one; empty, it is the one that serves."""
    return _one_of(_read(obj)[0], live(obj), revision) if revision else stable(obj)


def also_live(obj: Mapping[str, Any], revision: str) -> str:
    """A sentence where another one than ``revision`` is live; else empty."""
    name, others = _read(obj)[0], [one for one in live(obj) if one != revision]
    if not others:
        return ""
    command = plugin("report", name, obj["metadata"].get("namespace") or "", others[0])
    state = "which serves" if others[0] == stable(obj) else "which is being rolled out"
    return f"the page is of revision {revision}; that of {others[0]}, {state}: {command}"


def _one_of(name: str, found: list[str], revision: str) -> str:
    chosen = [one for one in found if one.startswith(revision)]
    if len(chosen) != 1:
        raise WishError(f"{revision!r} is {'no' if not chosen else 'more than one'} revision of {name} with replicas; "
                        f"those are {', '.join(found)}")
    return chosen[0]


def is_held(obj: Mapping[str, Any]) -> bool:
    """Whether the way back that :func:`roll_back` asks for is done: Ready stays False until :func:`release`."""
    _, status = _read(obj)
    asked = (obj["metadata"].get("annotations") or {}).get(labels.ROLLBACK_TO)
    ready = next((entry for entry in status.conditions if entry.type == Condition.READY), None)
    return (ready is not None and ready.reason == Reason.PINNED and status.pin is not None
            and status.pin.revision == asked and status.observed_generation == obj["metadata"].get("generation"))


def release(obj: Mapping[str, Any]) -> tuple[Annotations, str]:
    name, _ = _read(obj)
    if labels.ROLLBACK_TO not in (obj["metadata"].get("annotations") or {}):
        raise WishError(f"{name} is not held at a revision: it follows its spec")
    return {labels.ROLLBACK_TO: None}, f"{name} follows its spec again"


def retry(obj: Mapping[str, Any], stamp: str) -> tuple[Annotations, str]:
    """``stamp`` is any value that was not there before."""
    name, status = _read(obj)
    if not (_failed(status) or status.classes):  # what failed of a fleet may stand in the objects of its classes
        raise WishError(f"nothing of {name} has failed, so there is nothing to retry; its engine is rebuilt by "
                        + kubectl(f"optimisedmodel rebuild {name}", obj["metadata"].get("namespace") or ""))
    return {labels.RETRY: stamp}, f"the operator retries what failed of {name}"


def _failed(status: Status) -> bool:
    """Whether it remembers anything that another value of the annotation lets go."""
    steps = any(step and (step.failure or step.last_failure) for step in (status.source, status.build))
    given_up = status.rollout and status.rollout.rolled_back
    passed_over = status.placement and status.placement.tried
    asks_for_retry = any(RETRIES in entry.message for entry in status.conditions)
    return bool(steps or given_up or passed_over or status.contest or asks_for_retry)


def rebuild(obj: Mapping[str, Any], stamp: str) -> tuple[Annotations, str]:
    """``stamp`` is any value that was not there before."""
    return {labels.REBUILD: stamp}, (f"the engine of {obj['metadata']['name']} is rebuilt; what serves goes on until "
                                     "the new engine is proven")


def _read(obj: Mapping[str, Any]) -> tuple[str, Status]:
    return str(obj["metadata"]["name"]), read_status(obj.get("status"))


def _named(name: str, status: Status, revision: str) -> RevisionStatus:
    kept = _kept(status)
    found = [entry for entry in kept if entry.revision.startswith(revision)]
    if len(found) != 1:
        raise WishError(f"{revision!r} is {'no' if not found else 'more than one'} revision of {name} that served; "
                        f"those are {_names(kept)}")
    return found[0]


def _best(name: str, status: Status) -> RevisionStatus:
    if found := way_back(status):
        return found[0]
    if others := [entry for entry in _kept(status) if entry.outcome != "Serving"]:
        raise WishError(f"{name} keeps no earlier revision that was not given up and whose engine has not drifted; "
                        f"name one to go there nonetheless: {_names(others)}")
    if not _kept(status):
        raise WishError(f"no revision of {name} has served yet, so there is none to go back to")
    raise WishError(f"{name} keeps no earlier revision to go back to (spec.revisionHistoryLimit)")


def _kept(status: Status) -> list[RevisionStatus]:
    """That served, and so may be gone back to."""
    return [entry for entry in status.revisions if entry.promotion_time]


def _names(kept: list[RevisionStatus]) -> str:
    return ", ".join(entry.revision for entry in kept) or "none"
