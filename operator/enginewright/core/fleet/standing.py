"""Where each class of a fleet stands, and what its replicas can do: read off what its own object says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import Any

from enginewright.core import labels, status
from enginewright.core.conditions import Verdict, find, unknown
from enginewright.core.manifests import member_key
from enginewright.core.observed import FleetView, MemberView
from enginewright.core.reasons import Condition, Reason
from enginewright.core.spec import PlacementClassSpec, Spec
from enginewright.core.spec.fleet import as_raw, classes_of, member_name, member_spec
from enginewright.core.status import AutoscalingStatus, ClassStatus, EngineStatus, RolloutStatus
from enginewright.core.step import Step


class Standing(Enum):
    """PENDING: it builds, starts or is analysed. PROVEN: its candidate is good, and waits. PROMOTING: its candidate
    takes over. DONE: what is asked for serves alone. REFUSED: it gave the candidate up, or cannot build one."""

    PENDING = auto()
    PROVEN = auto()
    PROMOTING = auto()
    DONE = auto()
    REFUSED = auto()


@dataclass(frozen=True, kw_only=True)
class Member:
    """One class of the spec: ``wanted`` is the raw spec that its object is to have, ``view`` that object, None where
    it is not there, ``before`` what the fleet's status remembers of the class."""

    entry: PlacementClassSpec
    name: str
    wanted: Mapping[str, Any]
    view: MemberView | None
    before: ClassStatus | None

    @property
    def status(self) -> Mapping[str, Any]:
        return self.view.status if self.view else {}

    @cached_property
    def applied(self) -> bool:
        """Whether the object was given the wanted spec, and no user has changed it since."""
        view = self.view
        if view is None or view.deleting or view.annotations.get(labels.MEMBER_KEY) != member_key(self.wanted):
            return False
        return contains(view.spec, self.wanted)

    @cached_property
    def current(self) -> bool:
        """Whether what the object says is about the wanted spec."""
        return self.applied and self.view is not None and self.status.get("observedGeneration") == self.view.generation

    @cached_property
    def rollout(self) -> RolloutStatus:
        return status.read(RolloutStatus, self.status.get("rollout")) or RolloutStatus()

    @property
    def base(self) -> str:
        """The revision to go back to: of the last revision of the fleet that all classes served, else the one that the
        class relies on now. Empty for a class that never served."""
        return (self.before.stable if self.before else None) or self.rollout.stable or ""

    @property
    def available(self) -> bool:
        return says_available(self.status)

    @property
    def replicas(self) -> int:
        return int(self.status.get("replicas") or 0)

    @property
    def ready_replicas(self) -> int:
        return int(self.status.get("readyReplicas") or 0)

    @property
    def wanted_replicas(self) -> int:
        desired = self._scaling.desired_replicas
        if desired is not None:
            return desired
        asked = self.wanted.get("autoscaling") or {}
        return int(asked.get("minReplicas") or self.wanted.get("replicas") or 1)

    @property
    def max_replicas(self) -> int:
        """Of maxReplicas, schedules and what replicas may cost only its own scaler knows the outcome; before it has
        told, what the spec says."""
        return self.spec_max_replicas if self._scaling.max_replicas is None else self._scaling.max_replicas

    @property
    def spec_max_replicas(self) -> int:
        asked = self.wanted.get("autoscaling") or {}
        return int(asked.get("maxReplicas") or self.wanted_replicas)

    @property
    def unpriced(self) -> bool:
        """Whether its ceiling of costs cannot be kept, so that it gets no more replicas than it has."""
        return find(self.status.get("conditions"), Condition.SCALING_ACTIVE).get("reason") == Reason.PRICE_UNKNOWN

    @cached_property
    def _scaling(self) -> AutoscalingStatus:
        return status.read(AutoscalingStatus, self.status.get("autoscaling")) or AutoscalingStatus()

    def verdict(self, kind: Condition) -> Verdict:
        """What the object says of the wanted spec."""
        found = find(self.status.get("conditions"), kind) if self.current else {}
        known = found.get("status")
        if known not in ("True", "False", "Unknown"):
            return unknown(kind, Reason.PROGRESSING, f"OptimisedModel {self.name} has not said it yet.")
        return Verdict(type=kind, status=known, reason=str(found.get("reason")), message=str(found.get("message")))

    @cached_property
    def standing(self) -> Standing:
        if not self.current:
            return Standing.PENDING
        if self.refusal:
            return Standing.REFUSED
        complete = self.verdict(Condition.ROLLOUT_COMPLETE)
        if complete.ok:
            return Standing.DONE
        superseded = self.rollout.step == Step.EXPANDING and complete.reason == Reason.DRAINING
        if superseded or complete.reason == Reason.PINNED:
            return Standing.PENDING
        if self.rollout.step == Step.WAITING:
            return Standing.PROVEN
        taken_over = self.rollout.stable is not None and self.rollout.stable == self.rollout.candidate
        moving = taken_over or self.rollout.step in (Step.EXPANDING, Step.SWITCHING, Step.DRAINING)
        return Standing.PROMOTING if moving else Standing.PENDING

    @cached_property
    def refusal(self) -> Verdict | None:
        """Why the class will not have what is asked for before a user changes something."""
        if not self.current:
            return None
        ready, complete = self.verdict(Condition.READY), self.verdict(Condition.ROLLOUT_COMPLETE)
        if ready.reason == Reason.INVALID_SPEC:
            return ready
        for block, kind in (("source", Condition.SOURCE_RESOLVED), ("build", Condition.ENGINE_BUILT)):
            given_up = (self.status.get(block) or {}).get("failure")
            if given_up and not self.verdict(kind).ok:
                return self.verdict(kind)
        return complete if complete.reason in _REFUSED else None


_REFUSED = (Reason.ROLLED_BACK, Reason.OBJECTIVE_MISSED, Reason.BUILT_SLOWER, Reason.QUEUE_TIMEOUT_TOO_SHORT,
            Reason.CACHE_MISSING, Reason.MEMORY_LIMIT_TOO_LOW)


def says_available(status: Mapping[str, Any]) -> bool:
    return find(status.get("conditions"), Condition.AVAILABLE).get("status") == "True"


def members_of(name: str, spec: Spec, fleet: FleetView, before: Iterable[ClassStatus]) -> tuple[Member, ...]:
    """The classes of the spec, in its order; ``name`` is the fleet's."""
    rows = {entry.name: entry for entry in before}
    found = {view.name: view for view in fleet.members}
    return tuple(
        Member(entry=entry, name=member_name(name, entry.name), wanted=as_raw(member_spec(spec, entry)),
               view=found.get(member_name(name, entry.name)), before=rows.get(entry.name))
        for entry in classes_of(spec)
    )


def classes(names: Iterable[str]) -> str:
    """``Class a``, or ``Classes a, b``."""
    all_names = list(names)
    return f"Class {all_names[0]}" if len(all_names) == 1 else f"Classes {', '.join(all_names)}"


def summary(verdicts: Iterable[tuple[str, Verdict]]) -> str:
    """What classes say, by name; once what several say alike."""
    by_message: dict[str, list[str]] = {}
    for name, verdict in verdicts:
        by_message.setdefault(verdict.message, []).append(name)
    return " ".join(f"{classes(names)}: {message}" for message, names in by_message.items())


def contains(found: Any, wanted: Any) -> bool:
    """Whether ``found``, into which the apiserver has filled defaults, has all that is ``wanted``."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            key in found and contains(found[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        same = isinstance(found, list | tuple) and len(found) == len(wanted)
        return same and all(contains(one, other) for one, other in zip(found, wanted, strict=True))
    return bool(found == wanted)


def measured(statuses: Mapping[str, Mapping[str, Any]]) -> Mapping[str, float] | None:
    """Inferences a second of one replica of each, by its build; None unless all were measured."""
    engines = {name: status.read(EngineStatus, one.get("engine")) for name, one in statuses.items()}
    found = {name: engine.throughput for name, engine in engines.items() if engine and engine.throughput}
    return found if len(found) == len(engines) else None


def evenly(ready: Mapping[str, int], each: Mapping[str, float]) -> float:
    """What ready replicas carry together where each gets the same share: no more than the least capable of them all
    can do. ``each`` has every class with ready replicas."""
    return sum(ready.values()) * min((each[name] for name, count in ready.items() if count), default=0.0)


def ready_of(raw: Mapping[str, Any]) -> int:
    """Ready replicas by the status ``raw``."""
    return int(raw.get("readyReplicas") or 0)
