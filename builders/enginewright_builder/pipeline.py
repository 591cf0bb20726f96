"""The build, from request to published engine: resolve, fetch, export, ladder, sweep, repository, verify-load,
publish."""

from __future__ import annotations

import dataclasses
import logging
import time
from pathlib import Path

from enginewright_builder import engine_store, store
from enginewright_builder.contract import BuildRequest, CandidateSummary, Manifest, Outcome
from enginewright_builder.errors import BuilderError, classify
from enginewright_builder.progress import Tracker
from enginewright_builder.resolve import Resolved, resolve
from enginewright_builder.sources.places import as_written
from enginewright_builder.steps import Budget, Steps

log = logging.getLogger(__name__)

def run_resolve(request: BuildRequest, scratch: Path, tracker: Tracker) -> Outcome:
    """Never raises for what goes wrong in the request or the world: that is the outcome."""
    try:
        tracker.step("resolve", f"looking at {request.source.uri}")
        resolved = resolve(request, scratch)
        for note in resolved.notes:
            tracker.note(note)
        return Outcome(kind="resolve", ok=True, source=resolved.source, fingerprint=resolved.request.fingerprint())
    except BaseException as error:
        return _told(failure("resolve", error, tracker), request, scratch)


def run_build(request: BuildRequest, scratch: Path, tracker: Tracker) -> Outcome:
    """Builds, proves and publishes. Never raises for what goes wrong in the request or the world: that is the
    outcome."""
    begin = time.monotonic()
    resolved: Resolved | None = None
    try:
        steps = Steps(tracker)
        with steps.step("resolve", f"looking at {request.source.uri}"):
            resolved = resolve(request, scratch)
        for note in resolved.notes:
            tracker.note(note)
        engines = engine_store.of(request, tracker.note)
        # Said before it is looked for, so that nobody removes it meanwhile.
        engines.mark_used(resolved.request.fingerprint())
        if found := engines.lookup(resolved.request.fingerprint()):
            return _hit(found, resolved, tracker)
        from enginewright_builder.building import build  # PyTorch and all else: only where there is something to build

        outcome = build(resolved, scratch, steps, Budget(request.engine.build_budget_seconds))
        return dataclasses.replace(outcome, build_seconds=round(time.monotonic() - begin, 1))
    except BaseException as error:
        outcome = _told(failure("build", error, tracker), request, scratch)
        return dataclasses.replace(outcome, build_seconds=round(time.monotonic() - begin, 1),
                                   source=resolved.source if resolved else None,
                                   fingerprint=resolved.request.fingerprint() if resolved else "")


def _hit(found: Manifest, resolved: Resolved, tracker: Tracker) -> Outcome:
    tracker.step("done", "the store has this engine already")
    return dataclasses.replace(found.outcome, cache_hit=True, source=resolved.source,
                               manifest_digest=store.manifest_digest(found))


def failure(kind: str, error: BaseException, tracker: Tracker) -> Outcome:
    known = classify(error)
    if known.family == "bug":
        log.error("%s failed in step %s", kind, tracker.current, exc_info=error)
    candidates: tuple[CandidateSummary, ...] = getattr(known, "candidates", ())
    return Outcome(kind="resolve" if kind == "resolve" else "build", ok=False, error=_report(known, tracker).report(),
                   candidates=candidates)


def _told(outcome: Outcome, request: BuildRequest, scratch: Path) -> Outcome:
    assert outcome.error is not None
    return dataclasses.replace(outcome, error=as_written(outcome.error, request, scratch))


def _report(known: BuilderError, tracker: Tracker) -> BuilderError:
    if known.family == "bug":
        known.message = f"in step {tracker.current}: {known.message}"
    return known
