"""What live answers say of the engine that serves: condition QualityHeld, where the spec asks for it.

It never changes whether the object is Ready: who serves was proven, and is the best there is until a user decides
otherwise, or the target stage goes back where that is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from enginewright.core.commands import kubectl
from enginewright.core.conditions import Finding, Verdict, no, open_question, timestamp, yes
from enginewright.core.context import LOOK_AGAIN, PassContext
from enginewright.core.observed import PodView
from enginewright.core.quality import STALE_SECONDS, problems, silent_seconds
from enginewright.core.quality import Finding as Agreement
from enginewright.core.quality import find as find_agreement
from enginewright.core.quantity import count
from enginewright.core.reasons import Condition, Reason
from enginewright.core.serving import pods_of
from enginewright.core.status import QualityStatus
from enginewright_builder.contract import AGREEMENT, QualityReport

# Figures move with every sample, and every write of status wakes the object: they are refreshed this often.
REFRESH_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class QualityResult:
    """``verdict`` is None where the spec does not ask. ``drifted`` names the revision with live answers that
    have drifted."""

    verdict: Verdict | None = None
    memory: QualityStatus | None = None
    drifted: str = ""
    requeue: float | None = None


def live_quality(ctx: PassContext) -> QualityResult:
    if ctx.spec.quality is None:
        return QualityResult()
    stable = ctx.serving.stable
    pods = pods_of(ctx.observed, stable.revision) if stable else ()
    names = {pod.name for pod in pods}
    reports = {pod: report for pod, report in ctx.observed.quality.items() if pod in names}
    found = find_agreement(reports)
    trouble = "".join(f" A monitor says: {one}." for one in problems(reports.values())) + _captured(ctx, reports)
    if stable is None or found is None:
        silent = (f"No replica that serves measures agreement with the source model{_silence(reports)}.{trouble}"
                f"{_mute(ctx, pods, reports)}")
        return QualityResult(verdict=_about(open_question(Reason.NOT_MEASURED, silent)), requeue=LOOK_AGAIN)
    finding = _finding(ctx, stable.revision, found)
    verdict = _about(replace(finding, message=f"{finding.message}{_worst(found)}{trouble}"))
    memory = _memory(ctx, stable.revision, found)
    known = ctx.memory.quality
    if known and known.revision == stable.revision and ctx.same_words(verdict) and ctx.fresh(
            known.time, REFRESH_SECONDS):
        memory, verdict = known, replace(verdict, message=str(ctx.condition(verdict.type).get("message")))
    return QualityResult(verdict=verdict, memory=memory, drifted=stable.revision if found.drifted else "",
                         requeue=LOOK_AGAIN)


def _about(found: Finding) -> Verdict:
    return found.about(Condition.QUALITY_HELD)


def _finding(ctx: PassContext, revision: str, found: Agreement) -> Finding:
    figures = _figures(found)
    if found.drifted:
        return no(Reason.QUALITY_DRIFTED, f"{_what(found).capitalize()}s of revision {revision} have drifted: "
                  f"{figures} {_remedy(ctx, found)}")
    if found.held or (_reason_before(ctx, revision) == Reason.AGREEING and not found.few
                      and found.agreement.mean >= found.required):
        return yes(Reason.AGREEING, figures)
    if found.few:
        return open_question(Reason.MEASURING, f"{figures} At least {found.needed} answers are needed to say.")
    return open_question(Reason.UNDECIDED, f"{figures} That is too near to say; more answers (spec.quality.window) or "
                   "more time may.")


def _figures(found: Agreement) -> str:
    of = found.agreement
    if not of.samples:
        return f"No {_what(found)} has been scored yet."
    return (f"{found.metric} {of.mean:.4f} with the source model ({of.low:.4f} to {of.high:.4f}; {found.required:g} is "
            f"needed) over {count(of.samples, _what(found))} of {count(found.replicas, 'replica')}.")


def _what(found: Agreement) -> str:
    """The monitor of a language model asks prompts of its build, and sees no request."""
    return "test answer" if found.metric == AGREEMENT else "live answer"


def _worst(found: Agreement) -> str:
    alone = found.worst_agreement
    if alone is None:
        return ""
    return (f" Replica {found.worst} alone has drifted: {alone.mean:.4f} ({alone.low:.4f} to {alone.high:.4f}) over "
            f"{count(alone.samples, _what(found))}; look at its node and device, or delete the pod.")


def _silence(reports: Mapping[str, QualityReport]) -> str:
    """In steps that double, as every other wording is a write of status."""
    silent = silent_seconds(reports.values())
    if not silent:
        return ""
    steps = int(math.log2(silent / STALE_SECONDS))
    return f": no sampled traffic for more than {int(STALE_SECONDS / 60) << steps} minutes"


def _mute(ctx: PassContext, pods: Iterable[PodView], reports: Mapping[str, QualityReport]) -> str:
    """A monitor may want more memory than it has, and then only its log says so."""
    mute = min((pod.name for pod in pods if pod.ready and pod.name not in reports), default="")
    log = kubectl(f"logs {mute} -c quality", ctx.obj.namespace)
    return f" The monitor of {mute} does not answer yet: {log} says why." if mute else ""


def _captured(ctx: PassContext, reports: Mapping[str, QualityReport]) -> str:
    """The newest capture of live requests, where such are captured."""
    if ctx.spec.quality is None or ctx.spec.quality.capture is None or not reports:
        return ""
    newest = max(reports.values(), key=lambda report: report.captured_until)
    since, until = (timestamp(datetime.fromtimestamp(seconds, UTC))
                    for seconds in (newest.captured_since, newest.captured_until))
    failing = "".join(f" Requests cannot be captured: {one}." for one in sorted(
        {report.capture_problem for report in reports.values()} - {""}))
    if not newest.captured:
        return f" No capture is whole yet.{failing}"
    return (f" The newest capture has {count(newest.captured, 'sample')} of requests from {since} to {until}: "
            f"{newest.capture_digest}.{failing}")


def _remedy(ctx: PassContext, found: Agreement) -> str:
    if ctx.spec.quality and ctx.spec.quality.rollback:
        return "spec.quality.rollback asks to go back to the last revision that served before."
    if found.metric == AGREEMENT:
        return ("It is asked prompts of its build: look at what changed since then, such as a node's device or driver, "
                f"or go back with {ctx.roll_back_with}.")
    return ("Requests may have become unlike the data that accuracy was measured on: give such as "
            f"spec.accuracy.evaluation, or go back with {ctx.roll_back_with}.")


def _reason_before(ctx: PassContext, revision: str) -> str:
    """The reason given before of the same revision."""
    known = ctx.memory.quality
    if known is None or known.revision != revision:
        return ""
    return str(ctx.condition(Condition.QUALITY_HELD).get("reason") or "")


def _memory(ctx: PassContext, revision: str, found: Agreement) -> QualityStatus | None:
    """Nothing where nothing was scored: an agreement of 0 would be taken for one."""
    of = found.agreement
    if not of.samples:
        return None
    return QualityStatus(revision=revision, metric=found.metric, agreement=round(of.mean, 6), low=round(of.low, 6),
                         high=round(of.high, 6), required=round(found.required, 6), samples=of.samples,
                         replicas=found.replicas, time=timestamp(ctx.now))
