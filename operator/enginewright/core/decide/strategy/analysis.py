"""What an analysis asks, made from the spec; what live requests say of the candidate that gets them as well; and the
figures for status."""

from __future__ import annotations

import math

from enginewright.core.comparison import MOST_PATIENCE, Answer, Limits, Question
from enginewright.core.comparison.mirrored import Mirrored, required
from enginewright.core.context import PassContext
from enginewright.core.decide.strategy.required import Required
from enginewright.core.decide.strategy.splits import Split
from enginewright.core.language_models import server_at
from enginewright.core.quality import Finding as Agreement
from enginewright.core.quality import find as find_agreement
from enginewright.core.quality import problems
from enginewright.core.request import source_key
from enginewright.core.servers.vllm import VLLM
from enginewright.core.serving import pods_of
from enginewright.core.spec import Spec
from enginewright.core.status import AnalysisStatus
from enginewright_builder.contract import AGREEMENT

# A clear analysis takes this share of its seconds at least, an unclear one so many times them at most, within these
# bounds.
SHORTEST = 0.25
PATIENCE = 5
LEAST_PATIENCE = 60.0
# Made-up inputs lie off the data that accuracy was measured on: what is as alike as this is not called different.
MOST_SIMILARITY = 0.9
# Metrics that say nothing of the angle between outputs.
USUAL_SIMILARITY = 0.8


def question(ctx: PassContext, candidate: str, stable: str, number: int, split: Split,
             required: Required | None = None) -> Question:
    """Of the analysis at step ``number``; a new try of the same revision is another analysis, and so is one after
    traffic went back from it."""
    analysis, latency = ctx.spec.rollout.analysis, ctx.spec.objective.latency
    generates = server_at(ctx.observed, candidate, ctx.spec) is VLLM
    # Texts that are made up show no difference of engines: the first other token changes all that follow. How answers
    # to live requests end, and how long they are, does.
    alike, awaited = _comparable(ctx) and not generates, required is not None and required.awaited
    tokens = ctx.spec.objective.tokens
    return Question(
        key="/".join((stable, candidate, str(number), ctx.retry, *_again(ctx, candidate))),
        stable=stable,
        candidate=candidate,
        model=ctx.obj.served_as,
        alone=split.stable == 0,
        generates=generates,
        caching=frozenset(one.revision for one in ctx.observed.deployments
                          if one.caches and one.revision in (stable, candidate)),
        mirror=alike and analysis.mirror and ctx.spec.quality is not None and split.stable > 0,
        limits=Limits(
            slowdown=analysis.max_slowdown,
            requests=analysis.min_requests,
            percentile=latency.percentile if latency else tokens.percentile if tokens else 99.0,
            milliseconds=latency.milliseconds if latency else None,
            similarity=least_similarity(ctx.spec) if alike else None,
            watched=min(MOST_PATIENCE, SHORTEST * split.seconds),
            patience=MOST_PATIENCE if awaited else min(
                MOST_PATIENCE, max(LEAST_PATIENCE, float(PATIENCE * split.seconds))),
            required=required is not None,
            awaited=awaited,
            shown=required is not None and required.shown,
            first_token=tokens.ttft_milliseconds if tokens else None,
            per_token=tokens.tpot_milliseconds if tokens else None,
            alike=generates and _comparable(ctx) and _watched_alike(ctx, stable, candidate),
        ),
    )


def _again(ctx: PassContext, candidate: str) -> tuple[str, ...]:
    failed = ctx.rollout.failed_switches if ctx.rollout.candidate == candidate else None
    return (str(failed),) if failed else ()


def _comparable(ctx: PassContext) -> bool:
    """Whether both are meant to answer alike."""
    wish = ctx.spec.rollout.analysis.compare_outputs
    if wish != "auto":
        return wish == "always"
    known, now = ctx.memory.rollout, ctx.memory.source
    if not (known and known.stable_source and now and now.key == source_key(ctx.spec)):
        return False
    return known.stable_source == now.digest


def _watched_alike(ctx: PassContext, stable: str, candidate: str) -> bool:
    """The requests of a monitor end at their largest length. Where only one of both has a monitor, its requests
    would make live answers look cut."""
    deployed = [ctx.observed.deployment(revision) for revision in (stable, candidate)]
    return len({one.monitored if one else ctx.spec.quality is not None for one in deployed}) == 1


def least_similarity(spec: Spec) -> float:
    """The least cosine between two engines that both pass the accuracy gate.

    Both lie within arccos(1 - tolerance) of the reference, so within twice that of each other:
    cos(2 arccos x) = 2 x² - 1. By relative error both lie within tolerance · |reference|, so at most
    2 arcsin(tolerance) apart: cos(2 arcsin t) = 1 - 2 t².
    """
    tolerance = spec.accuracy.max_loss
    if spec.accuracy.metric == "cosine":
        found = 2 * (1 - tolerance) ** 2 - 1
    elif spec.accuracy.metric == "relative-error":
        found = 1 - 2 * tolerance**2
    else:
        found = USUAL_SIMILARITY
    return max(0.0, min(MOST_SIMILARITY, found))


def figures(answer: Answer) -> AnalysisStatus:
    """Rounded: status is for people."""
    ratio, asked = answer.ratio, None if answer.mirrored and answer.mirrored.tested else answer.mirrored
    live = asked if asked and asked.samples else None
    return AnalysisStatus(
        ratio=_short(ratio.mean) if ratio else None,
        low=_short(ratio.low) if ratio else None,
        high=_short(ratio.high) if ratio else None,
        measure=answer.measure or None,
        requests=answer.requests,
        failures=answer.failures,
        seconds=round(answer.seconds),
        uncompared=answer.uncompared or None,
        mirrored=live.samples if live else None if asked is None else 0,
        agreement=_short(live.mean) if live else None,
        agreement_low=_short(live.low) if live else None,
        agreement_high=_short(live.high) if live else None,
    )


def _short(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None


def _live(figures: AnalysisStatus) -> str:
    if not figures.mirrored or None in (figures.agreement, figures.agreement_low, figures.agreement_high):
        return "no live request was mirrored"
    return (f"{figures.mirrored} mirrored live requests agree by {figures.agreement:.3f} "
            f"({figures.agreement_low:.3f} to {figures.agreement_high:.3f})")


def summary(figures: AnalysisStatus | None) -> str:
    """A sentence, empty without figures."""
    if figures is None:
        return ""
    count = f"{figures.requests} requests, {figures.failures} failed, in {figures.seconds} s"
    if figures.uncompared:
        what = "outputs were not" if figures.ratio else "neither latency nor outputs were"
        count += f"; {what} compared: {figures.uncompared}"
    if figures.mirrored is not None:
        count += f"; {_live(figures)}"
    if figures.ratio is None or figures.low is None or figures.high is None:
        return f" It passed its analysis: {count}."
    return (
        f" It passed its analysis: {figures.measure or 'latency'} ratio {figures.ratio:.2f} ({figures.low:.2f} to "
        f"{figures.high:.2f}) over {count}."
    )


def mirrored(ctx: PassContext, stable: str, candidate: str) -> Mirrored | None:
    """What the monitors beside ``stable`` report of ``candidate``, which get the live requests that they sample; None
    where ``rollout.analysis.mirror`` does not ask for it. A report about other replicas is of an earlier rollout."""
    if not ctx.spec.rollout.analysis.mirror or ctx.spec.quality is None:
        return None
    theirs = {pod.ip for pod in pods_of(ctx.observed, candidate) if pod.ip}
    names = [pod.name for pod in pods_of(ctx.observed, stable)]
    reports = {name: ctx.observed.quality[name] for name in names if name in ctx.observed.quality}
    about = [report for report in reports.values() if report.targets and set(report.targets) <= theirs]
    trouble = problems(reports.values()) or (() if reports else ("no monitor beside the stable revision reports",))
    mine = ctx.spec.accuracy.max_loss
    return Mirrored(
        required=required(max(about[0].tolerance if about else mine, _lost(find_agreement(reports))), mine),
        metric=about[0].metric if about else "",
        samples=sum(report.mirrored for report in about),
        agreed=sum(report.agreed for report in about),
        problem="; ".join(trouble),
    )


def own_answers(ctx: PassContext, candidate: str) -> Mirrored | None:
    """What the monitors beside the replicas of ``candidate``, a language model, report of prompts of its build; None
    where ``spec.quality`` does not ask for it."""
    if ctx.spec.quality is None:
        return None
    reports = [ctx.observed.quality[pod.name] for pod in pods_of(ctx.observed, candidate)
               if pod.name in ctx.observed.quality]
    trouble = problems(reports) or (() if reports else ("no monitor beside it reports",))
    good = [report for report in reports if 0 < report.tolerance < 1]
    return Mirrored(
        required=1 - max((report.tolerance for report in good), default=ctx.spec.accuracy.max_loss),
        metric=AGREEMENT,
        samples=sum(report.samples for report in good),
        agreed=sum(report.total for report in good),
        problem="; ".join(trouble),
        tested=True,
    )


def _lost(found: Agreement | None) -> float:
    """What the stable revision's live answers lack of agreement with the source model for certain: the least loss of
    their interval, so that a few bad ones do not switch the check off. Where that is more than it was proven to lack, a
    candidate that mends it must not be held against what is wrong."""
    return max(0.0, 1 - found.agreement.high) if found else 0.0
