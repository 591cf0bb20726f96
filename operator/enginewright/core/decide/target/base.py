"""The revision to roll out, as data, and how one that was kept is made again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto

from enginewright.core.context import PassContext
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.manifests import revision_name
from enginewright.core.observed import EngineRecord, KeptRevision
from enginewright.core.request import store_claim
from enginewright.core.spec import Spec, parse_spec
from enginewright.core.spec.validate import reach_problems
from enginewright.core.status import PinStatus, RolledBackStatus
from enginewright.core.way_back import LIVE, served


class Why(Enum):
    """ASKED_FOR: by the spec, or an annotation. GOES_BACK: it stands in for what was given up. STAYS: it serves until
    what is asked for is built, and approved where that is needed. SERVES_ON: it was given up, and the revision that was
    to stand in for it does not start."""

    ASKED_FOR = auto()
    GOES_BACK = auto()
    STAYS = auto()
    SERVES_ON = auto()


@dataclass(frozen=True, kw_only=True)
class Pin:
    """What came of the annotation that names a revision: ``followed``, or a ``problem`` that says why not. ``note`` is
    to be said of one that is or was followed."""

    memory: PinStatus | None = None
    followed: bool = False
    problem: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Target:
    """``engine`` is to be rolled out, made as ``ctx.spec`` says; ``asked`` is what the spec or the annotation asks for.
    ``given_up`` is what this one stands in for, or the way back that failed; ``message`` says that. ``awaited`` is what
    this one serves until."""

    ctx: PassContext
    engine: EngineResult
    asked: EngineResult
    reason: Why = Why.ASKED_FOR
    message: str = ""
    pin: Pin = field(default_factory=Pin)
    given_up: RolledBackStatus | None = None
    awaited: EngineResult | None = None

    @property
    def revision(self) -> str:
        return self.engine.revision

    @property
    def plain(self) -> bool:
        """Whether it is what the spec asks for, and nothing is amiss with what an annotation says."""
        return self.reason is Why.ASKED_FOR and not (self.pin.followed or self.pin.problem)

    @property
    def untried(self) -> EngineRecord | None:
        """Its engine, where it has not served yet. None of one that has, that a user goes back to, or that stands in
        for what was given up."""
        ctx = self.ctx
        if self.reason is not Why.ASKED_FOR or self.pin.followed or self.revision == ctx.wishes.back:
            return None
        stable = ctx.serving.stable.revision if ctx.serving.stable else ""
        relied_on = (stable, ctx.rollout.stable, served(ctx.memory.revisions))
        return None if self.revision in relied_on else self.engine.record

    def rejection(self, revision: str) -> RolledBackStatus | None:
        """Why ``revision`` was given up, if it was and no user has asked for another try."""
        found = self.ctx.rollout.rolled_back
        return found if found and found.revision == revision and not self.ctx.retried(found.retry) else None

    def back_to(self, made: Target, given_up: RolledBackStatus) -> Target:
        """``made`` in its place."""
        message = f"Revision {given_up.revision} was given up ({given_up.reason}): {given_up.message}"
        return replace(self, ctx=made.ctx, engine=made.engine, reason=Why.GOES_BACK, given_up=given_up,
                       message=message)

    def until(self, ctx: PassContext, engine: EngineResult) -> Target:
        """``engine`` in its place, until this one can be rolled out."""
        return replace(self, ctx=ctx, engine=engine, reason=Why.STAYS, awaited=self.engine)

    def made_again(self, kept: KeptRevision) -> Target | None:
        """The target that ``kept`` is. None when this release would make another revision of it."""
        ctx, fingerprint = self.ctx, kept.outcome.fingerprint
        spec = _spec_of(ctx, kept)
        if spec is None or revision_name(fingerprint, spec, kept.placement, ctx.config) != kept.revision:
            return None
        # The engine may have been built again since.
        known = ctx.observed.records.get(fingerprint)
        record = EngineRecord(
            fingerprint=fingerprint, store_claim=store_claim(spec), store_uri=spec.store.uri,
            outcome=known.outcome if known and known.store_uri == spec.store.uri else kept.outcome)
        engine = EngineResult(verdict=self.engine.verdict, tried=self.engine.tried, fingerprint=fingerprint,
                              revision=kept.revision, record=record, placement=kept.placement)
        return replace(self, ctx=replace(ctx, spec=spec), engine=engine)


def _spec_of(ctx: PassContext, kept: KeptRevision) -> Spec | None:
    """The kept revision's, with the server image that it led to then, and the current one's live parts."""
    raw = {key: value for key, value in kept.spec.items() if key not in LIVE}
    raw |= {key: value for key, value in ctx.obj.spec.items() if key in LIVE}
    raw["serving"] = {**(kept.spec.get("serving") or {}), "image": kept.image}
    spec = parse_spec(raw)
    # Asked again: it may be an earlier release's, or stand in a ConfigMap that another object wrote.
    return spec if isinstance(spec, Spec) and not any(reach_problems(spec)) else None
