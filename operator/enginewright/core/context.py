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
from enginewright_builder.contract import RuntimeRequest

# How soon to look again for something whose appearance no watch reports.
LOOK_AGAIN = 30.0


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What earlier passes wrote into status. All of it may be missing: it saves work, it is never the truth."""

    source: status.SourceStatus | None = None
    server: status.ServerStatus | None = None
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
            server=status.read(status.ServerStatus, raw.get("server")),
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
class PassContext:
    """One pass: the object with its spec understood, what was observed, and what is remembered. ``runtime`` is what the
    server image has to run engines with, None while that is not known; ``asking`` says that it soon will be."""

    obj: ObjectView
    observed: Observed
    config: OperatorConfig
    spec: Spec
    memory: Memory
    runtime: RuntimeRequest | None = None
    asking: bool = False

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


def applied_as(observed: Observed, manifest: Mapping[str, Any]) -> str | None:
    """The manifest hash that the child was last applied with: None where there is no child, empty where somebody has
    changed since what ``manifest`` states."""
    key = f"{manifest['kind']}/{manifest['metadata']['name']}"
    found, live = observed.applied.get(key), observed.specs.get(key)
    return "" if found is not None and live is not None and not _holds(live, manifest["spec"]) else found


def _holds(found: Any, wanted: Any) -> bool:
    """Whether ``found``, into which the apiserver has filled defaults, has all that is ``wanted``, and a selector that
    is the very same. What others have added to a list stays there: server-side apply would not remove it either."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            found.get(key) == value if key == "selector" else key in found and _holds(found[key], value)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(_holds(one, item) for one in found) for item in wanted)
    return bool(found == wanted)


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
