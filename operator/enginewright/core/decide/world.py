"""What every step of one pass may look at, and small things that several steps say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from enginewright.core import labels, status
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests import Owner
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.plan import Apply
from enginewright.core.spec import Spec

# How soon to look again for something whose appearance no watch reports.
LOOK_AGAIN = 30.0


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What earlier passes wrote into status. All of it may be missing: it saves work, it is never the truth."""

    source: status.SourceStatus | None = None
    build: status.BuildStatus | None = None
    engine: status.EngineStatus | None = None
    rollout: status.RolloutStatus | None = None
    revisions: tuple[status.RevisionStatus, ...] = ()
    pin: status.PinStatus | None = None
    contest: status.ContestStatus | None = None
    autoscaling: status.AutoscalingStatus | None = None
    classes: tuple[status.ClassStatus, ...] = ()
    handover: status.HandoverStatus | None = None
    placement: status.PlacementStatus | None = None
    quality: status.QualityStatus | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            source=status.read(status.SourceStatus, raw.get("source")),
            build=status.read(status.BuildStatus, raw.get("build")),
            engine=status.read(status.EngineStatus, raw.get("engine")),
            rollout=status.read(status.RolloutStatus, raw.get("rollout")),
            revisions=status.read_all(status.RevisionStatus, raw.get("revisions")),
            pin=status.read(status.PinStatus, raw.get("pin")),
            contest=status.read(status.ContestStatus, raw.get("contest")),
            autoscaling=status.read(status.AutoscalingStatus, raw.get("autoscaling")),
            classes=status.read_all(status.ClassStatus, raw.get("classes")),
            placement=status.read(status.PlacementStatus, raw.get("placement")),
            handover=status.read(status.HandoverStatus, raw.get("handover")),
            quality=status.read(status.QualityStatus, raw.get("quality")),
        )


@dataclass(frozen=True, kw_only=True)
class World:
    """One pass: the object with its spec understood, what was observed, and what is remembered."""

    obj: ObjectView
    observed: Observed
    config: OperatorConfig
    spec: Spec
    memory: Memory

    @property
    def owner(self) -> Owner:
        return Owner.of(self.obj)

    @property
    def now(self) -> datetime:
        return self.observed.now

    @property
    def retry(self) -> str:
        """The user's wish to try again what failed: any new value of the annotation."""
        return self.obj.annotations.get(labels.RETRY, "")

    @property
    def rebuild(self) -> str:
        """The user's wish for another engine than the one in the store: any new value of the annotation."""
        return self.obj.annotations.get(labels.REBUILD, "")


def apply_if_changed(
    manifest: Mapping[str, Any], applied: str | None, why: str, *, force: bool = True
) -> tuple[Apply, ...]:
    """An ``Apply`` of ``manifest``, unless what was last applied bears the same hash."""
    unchanged = manifest["metadata"]["annotations"][labels.MANIFEST_HASH] == applied
    return () if unchanged else (Apply(manifest=manifest, why=why, force=force),)


def earliest(*delays: float | None) -> float | None:
    """The first of the moments at which somebody wants to look again."""
    return min((delay for delay in delays if delay is not None), default=None)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
