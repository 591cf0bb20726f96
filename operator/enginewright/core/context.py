"""What every stage of one pass may look at: the object and its spec, what was observed, and what is remembered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, Self

from enginewright.core import labels, status
from enginewright.core.commands import kubectl, plugin
from enginewright.core.conditions import Verdict, find, parse_timestamp
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests import Owner, revision_service_name
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.placement import place
from enginewright.core.problems import Problem
from enginewright.core.reasons import Condition
from enginewright.core.request import server_image
from enginewright.core.same import Same
from enginewright.core.serving import Serving
from enginewright.core.spec import Spec
from enginewright.core.spec.fleet import classes_of, fleet_problems
from enginewright.core.spec.parse import parse_spec
from enginewright.core.spec.validate import validate, validate_member_name, validate_name
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
    throughput: status.ThroughputStatus | None = None
    pin: status.PinStatus | None = None
    contest: status.ContestStatus | None = None
    autoscaling: status.AutoscalingStatus | None = None
    classes: tuple[status.ClassStatus, ...] = ()
    handover: status.HandoverStatus | None = None
    placement: status.PlacementStatus | None = None
    quality: status.QualityStatus | None = None
    cost: status.CostStatus | None = None
    batch: status.BatchStatus | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Self:
        """A pass asks several times of the same status."""
        return cls._of(Same(raw))

    @classmethod
    @lru_cache(maxsize=32)
    def _of(cls, status_of: Same[Mapping[str, Any]]) -> Self:
        raw = status_of.value
        return cls(
            source=status.read(status.SourceStatus, raw.get("source")),
            server=status.read(status.ServerStatus, raw.get("server")),
            build=status.read(status.BuildStatus, raw.get("build")),
            engine=status.read(status.EngineStatus, raw.get("engine")),
            rollout=status.read(status.RolloutStatus, raw.get("rollout")),
            revisions=status.read_all(status.RevisionStatus, raw.get("revisions")),
            throughput=status.read(status.ThroughputStatus, raw.get("throughput")),
            pin=status.read(status.PinStatus, raw.get("pin")),
            contest=status.read(status.ContestStatus, raw.get("contest")),
            autoscaling=status.read(status.AutoscalingStatus, raw.get("autoscaling")),
            classes=status.read_all(status.ClassStatus, raw.get("classes")),
            placement=status.read(status.PlacementStatus, raw.get("placement")),
            handover=status.read(status.HandoverStatus, raw.get("handover")),
            quality=status.read(status.QualityStatus, raw.get("quality")),
            cost=status.read(status.CostStatus, raw.get("cost")),
            batch=status.read(status.BatchStatus, raw.get("batch")),
        )


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is asked of this object beside its spec, by annotation: by a user, or by the fleet that it is a class of.
    Nothing else in a pass reads these annotations.

    ``promote`` and ``back`` name a revision each, empty where no one asks. Of a fleet: ``held_back`` is the revision to
    stay at whatever the spec says, ``after`` who is to come first, ``least`` how many replicas it wants at least."""

    promote: str = ""
    back: str = ""
    held_back: str = ""
    after: str = ""
    least: int | None = None

    @classmethod
    def of(cls, obj: ObjectView) -> Self:
        annotation = obj.annotations.get
        least = annotation(labels.LEAST_REPLICAS, "")
        return cls(
            promote=annotation(labels.PROMOTE, "").strip(), back=annotation(labels.ROLLBACK_TO, "").strip(),
            held_back=annotation(labels.HELD_BACK, ""), after=annotation(labels.AFTER, "") if obj.fleet else "",
            least=int(least) if obj.fleet and re.fullmatch(r"[0-9]{1,4}", least) else None,
        )


@dataclass(frozen=True, kw_only=True)
class PassContext:
    """One pass. ``runtime`` is what the server image has to run engines with, None while that is not known; ``asking``
    says that it soon will be."""

    obj: ObjectView
    observed: Observed
    config: OperatorConfig
    spec: Spec
    memory: Memory
    runtime: RuntimeRequest | None = None
    asking: bool = False

    @classmethod
    def of(cls, obj: ObjectView, observed: Observed, config: OperatorConfig, spec: Spec) -> Self:
        return cls(obj=obj, observed=observed, config=config, spec=spec, memory=Memory.of(obj.status))

    @cached_property
    def owner(self) -> Owner:
        return Owner.of(self.obj)

    @property
    def now(self) -> datetime:
        return self.observed.now

    @property
    def suspended(self) -> bool:
        return self.spec.suspend

    @property
    def recreates(self) -> bool:
        """Whether the old replicas go before the new ones come."""
        return self.spec.rollout.strategy == "Recreate"

    @cached_property
    def wishes(self) -> Wishes:
        return Wishes.of(self.obj)

    @cached_property
    def serving(self) -> Serving:
        return Serving.of(self.observed, self.memory.rollout)

    @cached_property
    def rollout(self) -> status.RolloutStatus:
        """What is remembered of the rollout, if anything."""
        return self.memory.rollout or status.RolloutStatus()

    @property
    def retry(self) -> str:
        """The user's wish to try again what failed: any new value of the annotation."""
        return self.obj.annotations.get(labels.RETRY, "")

    def retried(self, under: str | None) -> bool:
        """Whether a user has asked for another try since what failed, which counts for the annotation ``under``; None
        where it counts whatever that says."""
        return under not in (None, self.retry)

    def began_under(self, revision: str) -> str:
        """The annotation under which the rollout of ``revision`` began: what fails counts for that one, so that a user
        who has seen it fail before the operator did is answered."""
        known = self.rollout
        return known.retry if known.candidate == revision and known.retry is not None else self.retry

    def with_retry(self, memory: status.RolloutStatus) -> status.RolloutStatus:
        """``memory``, which is to be kept, with the annotation that its candidate began under."""
        began = self.began_under(memory.candidate) if memory.candidate else None
        return memory.model_copy(update={"retry": began})

    @property
    def rebuild(self) -> str:
        """The user's wish for another engine than the one in the store: any new value of the annotation."""
        return self.obj.annotations.get(labels.REBUILD, "")

    def promote_with(self, revision: str) -> str:
        """The command with which a user promotes ``revision``, and no other that may wait by then."""
        return plugin("promote", self.obj.name, self.obj.namespace, revision)

    def promote_unbegun_with(self, revision: str) -> str:
        """The same before ``revision`` has begun: status has no candidate then, which the plugin's verb promotes."""
        annotation = f"{labels.PROMOTE}={revision}"
        return kubectl(f"annotate --overwrite om {self.obj.name} {annotation}", self.obj.namespace)

    @property
    def retry_with(self) -> str:
        """The command with which a user tries again what failed; of a class of a fleet, in all classes."""
        return plugin("retry", self.obj.fleet or self.obj.name, self.obj.namespace)

    @property
    def roll_back_with(self) -> str:
        """The command with which a user goes back to the revision that served before."""
        return plugin("rollback", self.obj.fleet or self.obj.name, self.obj.namespace)

    @property
    def retry_hint(self) -> str:
        return f"Change the spec, or try again with {self.retry_with}."

    def has_backend(self, revision: str) -> bool:
        """Whether there is a Service of ``revision`` for routes to lead to."""
        return f"Service/{revision_service_name(self.obj.name, revision)}" in self.observed.applied

    def condition(self, kind: Condition) -> Mapping[str, Any]:
        """The condition as the pass before left it, or an empty mapping."""
        return find(self.obj.status.get("conditions"), kind)

    def fresh(self, moment: str | None, seconds: float) -> bool:
        """Whether ``moment`` is no longer ago than that. Figures move with every look and every write of status wakes
        the object: those that are fresh are not written again while nothing else has changed."""
        taken = parse_timestamp(moment)
        return taken is not None and timedelta(0) <= self.now - taken < timedelta(seconds=seconds)

    def same_words(self, verdict: Verdict) -> bool:
        """Whether ``verdict`` says what the pass before said of this very spec, but for figures."""
        before = self.condition(verdict.type)
        return (before.get("status"), before.get("reason"), before.get("observedGeneration")) == (
            verdict.status, verdict.reason, self.obj.generation)


def read_spec(obj: ObjectView, config: OperatorConfig) -> Spec | tuple[Problem, ...]:
    """The spec, or all that is wrong with it: name, shape, rules between fields, hardware that does not exist."""
    spec = parse_spec(obj.spec)
    if not isinstance(spec, Spec):
        return _named(obj.name) + spec
    return _problems(obj.name, Same(spec), Same(config)) or spec


def _named(name: str) -> tuple[Problem, ...]:
    problem = validate_name(name)
    return (problem,) if problem else ()


@lru_cache(maxsize=256)  # as parse_spec, which gives the same object for the same text
def _problems(name: str, spec: Same[Spec], config: Same[OperatorConfig]) -> tuple[Problem, ...]:
    return (_named(name) + validate(spec.value) or _unserved(spec.value, config.value)
            or _unplaceable(name, spec.value, config.value))


def _unserved(spec: Spec, config: OperatorConfig) -> tuple[Problem, ...]:
    """A platform names an image for language models, or has none."""
    if server_image(spec, config):
        return ()
    return (Problem(field="spec.serving.image", value='""', message="is required with task generate here: the operator "
                    "has no server image for language models",
                    remedy="name an image with vLLM, or let the platform set images.serverVllm of the operator's "
                           "chart"),)


def _unplaceable(name: str, spec: Spec, config: OperatorConfig) -> tuple[Problem, ...]:
    """The source's size is not known yet, which only makes an automatic MIG profile provisional."""
    if spec.placement.classes:
        long = (validate_member_name(name, entry) for entry in classes_of(spec))
        return tuple(filter(None, long)) or fleet_problems(spec, lambda one: _unplaceable("", one, config))
    placement = place(spec, 0, config)
    return (placement,) if isinstance(placement, Problem) else ()


def earliest(*delays: float | None) -> float | None:
    """The first of the moments at which the pass is due again."""
    return min((delay for delay in delays if delay is not None), default=None)
