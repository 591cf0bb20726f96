"""``placement.mig.profile: auto``: the smallest slice that holds the objective, by what builds measured on slices.

The table in :mod:`~enginewright.core.mig` says where to begin. A build on a slice tells how much memory the served
engine takes there and whether it meets the objective; one that does not sends the next build to a larger slice, and one
that is in the store for a smaller slice and does spares the larger. Every slice is built on at most once for one
request: what missed is remembered in status, also when its engine has been removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from enginewright.core import mig
from enginewright.core.collect import retired
from enginewright.core.config import OperatorConfig
from enginewright.core.context import PassContext
from enginewright.core.decide import attempts
from enginewright.core.decide.jobs import forgiven
from enginewright.core.decide.trouble import starting_trouble
from enginewright.core.placement import Placement, built_for, place
from enginewright.core.problems import Problem
from enginewright.core.published import Published, in_tokens, published
from enginewright.core.reasons import Reason
from enginewright.core.request import build_key, build_request, store_claim
from enginewright.core.same import Same
from enginewright.core.serving import Serving
from enginewright.core.spec import Spec
from enginewright.core.status import BuildStatus, TriedProfileStatus
from enginewright_builder.contract import DeviceRequest, EngineSummary, GenerateSummary, ResolvedSource, RuntimeRequest


@dataclass(frozen=True, kw_only=True)
class SliceChoice:
    """``tried`` are profiles that did not do, ``said`` tells of them; empty where the user names the profile."""

    placement: Placement
    tried: tuple[TriedProfileStatus, ...] = ()
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class _Option:
    profile: mig.Profile
    placement: Placement
    fingerprint: str
    engine: Published | None


def choose(ctx: PassContext, resolved: ResolvedSource) -> SliceChoice | Problem:
    slices = ctx.spec.placement.mig
    first = place(ctx.spec, resolved.size_bytes, ctx.config)
    if isinstance(first, Problem):
        return first
    if slices is None or slices.profile != "auto":
        return SliceChoice(placement=first)
    options = list(_options(ctx, resolved))
    begin = next(index for index, one in enumerate(options) if one.profile.name == first.device.mig_profile)
    spared = next((one for one in options[:begin] if one.engine and not _missed(ctx, one)), None)
    return SliceChoice(placement=spared.placement) if spared else _upwards(ctx, options[begin:])


def fingerprints(ctx: PassContext, resolved: ResolvedSource) -> frozenset[str]:
    """Of the engines that :func:`choose` may look up or lead to; none while it is not known what the server has."""
    if ctx.runtime is None:
        return frozenset()
    slices = ctx.spec.placement.mig
    if slices is not None and slices.profile == "auto":
        return frozenset(option.fingerprint for option in _options(ctx, resolved))
    placement = place(ctx.spec, resolved.size_bytes, ctx.config)
    return frozenset() if isinstance(placement, Problem) else frozenset({_fingerprint(ctx, resolved, placement)})


def _fingerprint(ctx: PassContext, resolved: ResolvedSource, placement: Placement) -> str:
    assert ctx.runtime is not None, "there is no fingerprint before it is known what the server has"
    return _key(Same(ctx.spec), resolved, placement.device, Same(ctx.config), ctx.runtime, ctx.rebuild)


@lru_cache(maxsize=1024)  # each stage of a pass asks, for each format that the source may have
def _key(spec: Same[Spec], resolved: ResolvedSource, device: DeviceRequest, config: Same[OperatorConfig],
         runtime: RuntimeRequest, rebuild: str) -> str:
    """Of the engine, whichever model asks for it: the name is in no fingerprint."""
    return build_request("", spec.value, resolved, Placement(device=device), config.value, runtime,
                         rebuild=rebuild).fingerprint()


def _options(ctx: PassContext, resolved: ResolvedSource) -> Iterator[_Option]:
    """From the smallest profile to the largest."""
    for profile in sorted(mig.profiles(built_for(ctx.spec)), key=mig.size):
        placement = place(ctx.spec, resolved.size_bytes, ctx.config, profile=profile.name)
        if isinstance(placement, Placement):
            fingerprint = _fingerprint(ctx, resolved, placement)
            yield _Option(profile=profile, placement=placement, fingerprint=fingerprint,
                          engine=_engine(ctx, fingerprint))


def _engine(ctx: PassContext, fingerprint: str) -> Published | None:
    record = ctx.observed.records.get(fingerprint)
    if record is None or retired(record.unreferenced, ctx.now, ctx.config):
        return None
    return published(record.outcome) if record.store_claim == store_claim(ctx.spec) else None


def _upwards(ctx: PassContext, options: list[_Option]) -> SliceChoice:
    """The first that holds, or that nothing is known of. Where none holds, the largest that has an engine."""
    tried: list[TriedProfileStatus] = []
    passed: list[_Option] = []
    for option in options:
        if passed and not _larger(option.profile, passed[-1].profile, tried[-1].reason):
            continue
        if option.engine is None and (meanwhile := _meanwhile(ctx, passed, option)):
            return SliceChoice(placement=meanwhile.placement, tried=tuple(tried), message=_words(tried, None))
        missed = _missed(ctx, option)
        if missed is None:
            return SliceChoice(placement=option.placement, tried=tuple(tried), message=_words(tried, option.profile))
        tried.append(missed)
        passed.append(option)
    best = next((option for option in reversed(passed) if option.engine), passed[-1])
    return SliceChoice(placement=best.placement, tried=tuple(tried),
                       message=f"{_words(tried, None)} No larger profile of {built_for(ctx.spec)} is left: "
                            f"{best.profile.name} is taken.")


def _meanwhile(ctx: PassContext, passed: list[_Option], following: _Option) -> _Option | None:
    """Where no revision has served yet, an engine that misses the objective serves before the next one is built,
    unless it does not start, or rollout.requireObjective refuses it. A build that was begun goes on: a replica that is
    down for a moment, or for lack of requests, is no reason to end it."""
    if ctx.spec.rollout.require_objective:
        return None
    latest = next((option for option in reversed(passed) if option.engine), None)
    build = ctx.memory.build
    if latest is None or _served(ctx) or (build and build.fingerprint == following.fingerprint):
        return None
    alive = (one for one in ctx.observed.deployments if not one.deleting)
    deployed = next((one for one in alive if one.fingerprint == latest.fingerprint), None)
    return None if deployed and starting_trouble(ctx, deployed, deployed.revision) else latest


def _served(ctx: PassContext) -> bool:
    """Whether a revision was proven to serve; should status be lost, whether one does."""
    rollout = ctx.memory.rollout
    return bool(rollout.stable if rollout else Serving.of(ctx.observed, None).stable)


def _larger(profile: mig.Profile, than: mig.Profile, reason: str) -> bool:
    """In what was missing."""
    if reason == Reason.OUT_OF_MEMORY:
        return profile.bytes > than.bytes
    return (profile.compute, profile.sms) > (than.compute, than.sms)


def _missed(ctx: PassContext, option: _Option) -> TriedProfileStatus | None:
    """Why the profile does not do; None when it does, or nothing is known."""
    if engine := option.engine:
        # vLLM takes what memory a device has. What its builds measured is the host's.
        if isinstance(engine, EngineSummary) and engine.memory_bytes > option.profile.bytes:
            taken = f"the served engine takes {engine.memory_bytes / mig.GIB:.1f} GiB of {option.profile.gib:g} GiB"
            return _tried(option, Reason.OUT_OF_MEMORY, taken)
        kept = engine.objective_met or engine.too_few_requests
        return None if kept else _tried(option, Reason.NOT_MET, _figures(ctx, engine))
    for known in _remembered(ctx):
        if known.fingerprint == option.fingerprint and not forgiven(ctx, known):
            return known
    build = ctx.memory.build
    if build is None or build.fingerprint != option.fingerprint or not attempts.forgive(ctx, build).failures:
        return None
    if build.last_failure and build.last_failure.device:
        known = _tried(option, Reason.OUT_OF_MEMORY, f"the build did not fit into {option.profile.gib:g} GiB")
        return known.model_copy(update={"retry": ctx.retry, "spec_key": build_key(ctx.spec),
                                       "attempts": build.attempts})
    return None


def measured_latency(engine: EngineSummary, percentile: float) -> tuple[float, float]:
    """The percentile that a build measures nearest to what was asked for, and its milliseconds."""
    measured = {50.0: engine.p50_ms, 95.0: engine.p95_ms, 99.0: engine.p99_ms}
    if engine.p999_ms is not None:
        measured[99.9] = engine.p999_ms
    found = percentile if percentile in measured else 99.0
    return found, measured[found]


def _figures(ctx: PassContext, engine: Published) -> str:
    if isinstance(engine, GenerateSummary):
        return in_tokens(engine)
    message = []
    if latency := ctx.spec.objective.latency:
        _, measured = measured_latency(engine, latency.percentile)
        message.append(f"{measured:.1f} of {latency.milliseconds:g} ms")
    if wanted := ctx.spec.objective.throughput:
        message.append(f"{engine.throughput:.0f} of {wanted:g} inferences a second")
    return ", ".join(message)


def begun(ctx: PassContext, fingerprint: str) -> BuildStatus | None:
    """What is known of builds of an engine that is tried again: Jobs that failed are not taken for its own."""
    known = next((known for known in _remembered(ctx) if known.fingerprint == fingerprint and known.attempts), None)
    return BuildStatus(fingerprint=fingerprint, attempts=known.attempts) if known else None


def _tried(option: _Option, reason: str, message: str) -> TriedProfileStatus:
    return TriedProfileStatus(profile=option.profile.name, fingerprint=option.fingerprint, reason=reason,
                              message=message)


def _remembered(ctx: PassContext) -> tuple[TriedProfileStatus, ...]:
    return (ctx.memory.placement.tried if ctx.memory.placement else None) or ()


def _words(tried: Iterable[TriedProfileStatus], now: mig.Profile | None) -> str:
    missed = "; ".join(f"{one.profile} does not do ({one.reason}: {one.message})" for one in tried)
    if not missed:
        return ""
    return f"MIG profile {missed}{f': {now.name} is taken' if now else ''}."
