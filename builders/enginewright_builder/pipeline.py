"""The build, from request to published engine: resolve, fetch, export, ladder, finalists; then, in the same program or
in another one, sweep, appraise, repository, verify-load, publish."""

from __future__ import annotations

import dataclasses
import functools
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from enginewright_builder.contract import BuildRequest, CandidateSummary, Manifest, Outcome, ResolvedSource
from enginewright_builder.engine_store import store
from enginewright_builder.engine_store.manifest import manifest_digest
from enginewright_builder.errors import BuilderError, UserError, classify
from enginewright_builder.progress import Tracker
from enginewright_builder.resolve import Resolved, resolve
from enginewright_builder.sources.places import as_written
from enginewright_builder.steps import Budget, Steps

if TYPE_CHECKING:
    from enginewright_builder.generate.hand_over import HandOver as ModelHandOver
    from enginewright_builder.generate.resolving import ResolvedModel
    from enginewright_builder.generate.supervised import Supervised
    from enginewright_builder.generate.trial import Open
    from enginewright_builder.proving import Servers

log = logging.getLogger(__name__)

# In a hand-over: how a build ended that has nothing to prove.
OUTCOME_FILE = "outcome.json"


class _Known(Protocol):
    """What a resolve step found, whatever the model is for."""

    @property
    def request(self) -> BuildRequest: ...

    @property
    def source(self) -> ResolvedSource: ...

    @property
    def notes(self) -> tuple[str, ...]: ...


class _Left(Protocol):
    """The document that a first half leaves, whatever the model is for."""

    @property
    def request(self) -> BuildRequest: ...

    @property
    def source(self) -> ResolvedSource: ...

    @property
    def steps(self) -> Mapping[str, float]: ...

    @property
    def spent(self) -> float: ...


Found = TypeVar("Found", bound=_Known)
Resolve = Callable[[BuildRequest, Path], Found]
Make = Callable[[Found, Path, Steps, Budget], Outcome | None]
Prove = Callable[[Steps, Budget], Outcome]


def run_resolve(request: BuildRequest, scratch: Path, tracker: Tracker) -> Outcome:
    """Never raises for what goes wrong in the request or the world: that is the outcome."""
    try:
        tracker.step("resolve", f"looking at {request.source.uri}")
        resolved: _Known = _resolve_model(request, scratch) if request.generate else resolve(request, scratch)
        for note in resolved.notes:
            tracker.note(note)
        return Outcome(kind="resolve", ok=True, source=resolved.source, fingerprint=resolved.request.fingerprint())
    except BaseException as error:
        return _in_the_users_terms(failure("resolve", error, tracker), request, scratch)


def run_build(request: BuildRequest, scratch: Path, tracker: Tracker) -> Outcome:
    """Builds, proves and publishes. Never raises for what goes wrong in the request or the world: that is the
    outcome."""
    begin = time.monotonic()
    outcome = (_run(request, scratch, tracker, _resolve_to_serve, _make_model) if request.generate else
               _run(request, scratch, tracker, resolve, _make))
    assert outcome is not None
    if outcome.cache_hit:
        return outcome
    return dataclasses.replace(outcome, build_seconds=_seconds(time.monotonic() - begin))


# What each task needs is imported where there is something to do: PyTorch, or the client of language models.

def _make(resolved: Resolved, scratch: Path, steps: Steps, budget: Budget) -> Outcome:
    from enginewright_builder.building import build

    return build(resolved, scratch, steps, budget)


def _resolve_model(request: BuildRequest, scratch: Path) -> ResolvedModel:
    from enginewright_builder.generate.resolving import resolve_model

    return resolve_model(request, scratch)


def _resolve_to_serve(request: BuildRequest, scratch: Path) -> ResolvedModel:
    """Where there is no server, there is nothing to fetch."""
    from enginewright_builder.generate.packages import packages

    packages()
    return _resolve_model(request, scratch)


def _make_model(resolved: ResolvedModel, scratch: Path, steps: Steps, budget: Budget) -> Outcome:
    from enginewright_builder.generating import build_model

    return build_model(resolved, scratch, steps, budget)


def run_finalists(request: BuildRequest, scratch: Path, tracker: Tracker, folder: Path) -> Outcome | None:
    """The first half of :func:`run_build`: leaves in ``folder`` what :func:`run_proof` goes on with, and returns None,
    or how it ended where nothing is left to do. It runs on the device; of a language model it only fetches and checks
    the source, without a device. It never raises."""
    def make(resolved: Resolved, scratch: Path, steps: Steps, budget: Budget) -> None:
        from enginewright_builder.building import build_finalists

        build_finalists(resolved, scratch, folder, steps, budget)

    def keep(resolved: ResolvedModel, scratch: Path, steps: Steps, budget: Budget) -> None:
        from enginewright_builder.generate import hand_over

        hand_over.leave(resolved, folder, steps.seconds, budget.spent)

    begin = time.monotonic()
    outcome = (_run(request, scratch, tracker, _resolve_model, keep) if request.generate else
               _run(request, scratch, tracker, resolve, make))
    if outcome is not None and outcome.ok:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / OUTCOME_FILE).write_text(outcome.to_json(), encoding="utf-8")
    elif outcome is not None:
        return dataclasses.replace(outcome, build_seconds=_seconds(time.monotonic() - begin))
    return outcome


def run_proof(folder: Path, servers: Servers | None, tracker: Tracker,
              server: Open | Supervised | None = None) -> Outcome:
    """The second half. ``servers`` are for a model of tensors. ``server`` makes those of a language model, by default
    child processes; what the device can do is asked where it starts them. Never raises either."""
    document: _Left | None = None
    try:
        if (folder / OUTCOME_FILE).exists():
            tracker.step("done", "nothing to prove: the store has this engine already")
            return Outcome.from_json((folder / OUTCOME_FILE).read_text(encoding="utf-8"))
        document, prove = _left(folder, servers, server)
        budget = Budget(document.request.engine.build_budget_seconds, already=document.spent)
        steps = Steps(tracker)
        steps.seconds.update(document.steps)
        return dataclasses.replace(prove(steps, budget), build_seconds=_seconds(budget.spent))
    except BaseException as error:
        outcome = failure("build", error, tracker)
        if document is None:
            return outcome
        outcome = _in_the_users_terms(outcome, document.request, folder)
        return dataclasses.replace(outcome, build_seconds=_seconds(budget.spent), source=document.source,
                                   fingerprint=document.request.fingerprint())


def _left(folder: Path, servers: Servers | None,
          server: Open | Supervised | None) -> tuple[_Left, Prove]:
    """What a first half left in ``folder``, and what goes on with it."""
    from enginewright_builder.generate import hand_over

    if hand_over.left(folder):
        document = hand_over.read(folder)
        return document, functools.partial(_prove_model, document, folder, server)
    if servers is None:
        raise UserError("RequestInvalid", "a model of tensors is proven on a tritonserver that runs already, and its "
                        "model repository is not given", field="--repository", value="",
                        remedy="name the folder that the server reads its models from")
    from enginewright_builder.hand_over import Handed
    from enginewright_builder.proving import prove_finalists

    handed = Handed(folder)
    return handed.document, functools.partial(prove_finalists, handed, servers)


def _prove_model(document: ModelHandOver, folder: Path, server: Open | Supervised | None, steps: Steps,
                 budget: Budget) -> Outcome:
    from enginewright_builder.generate import hand_over
    from enginewright_builder.generate.server import VllmServer
    from enginewright_builder.generate.supervised import Supervised
    from enginewright_builder.generating import build_model
    from enginewright_builder.machine import look

    # In the same volume, where a link is as good as a copy.
    with tempfile.TemporaryDirectory(prefix="prove-", dir=folder, ignore_cleanup_errors=True) as scratch:
        with steps.step("fetch", "checking what the first half left"):
            resolved = hand_over.taken(document, folder, Path(scratch))
        return build_model(resolved, Path(scratch), steps, budget, server or VllmServer,
                           server.look if isinstance(server, Supervised) else look)


def _run(request: BuildRequest, scratch: Path, tracker: Tracker, resolve: Resolve[Found],
         make: Make[Found]) -> Outcome | None:
    resolved: Found | None = None
    try:
        steps = Steps(tracker)
        with steps.step("resolve", f"looking at {request.source.uri}"):
            resolved = resolve(request, scratch)
        for note in resolved.notes:
            tracker.note(note)
        engines = store.of(request, tracker.note)
        # Noted before it is looked for, so that the collector does not remove it meanwhile.
        engines.mark_used(resolved.request.fingerprint())
        if found := engines.lookup(resolved.request.fingerprint()):
            return _hit(found, resolved, tracker)
        return make(resolved, scratch, steps, Budget(request.engine.build_budget_seconds))
    except BaseException as error:
        outcome = _in_the_users_terms(failure("build", error, tracker), request, scratch)
        return dataclasses.replace(outcome, source=resolved.source if resolved else None,
                                   fingerprint=resolved.request.fingerprint() if resolved else "")


def _seconds(seconds: float) -> float:
    return round(seconds, 1)


def _hit(found: Manifest, resolved: _Known, tracker: Tracker) -> Outcome:
    tracker.step("done", "the store has this engine already")
    return dataclasses.replace(found.outcome, cache_hit=True, source=resolved.source,
                               manifest_digest=manifest_digest(found))


def failure(kind: str, error: BaseException, tracker: Tracker) -> Outcome:
    known = classify(error)
    if known.family == "bug":
        log.error("%s failed in step %s", kind, tracker.current, exc_info=error)
    candidates: tuple[CandidateSummary, ...] = getattr(known, "candidates", ())
    return Outcome(kind="resolve" if kind == "resolve" else "build", ok=False, error=_report(known, tracker).report(),
                   candidates=candidates)


def _in_the_users_terms(outcome: Outcome, request: BuildRequest, scratch: Path) -> Outcome:
    assert outcome.error is not None
    return dataclasses.replace(outcome, error=as_written(outcome.error, request, scratch))


def _report(known: BuilderError, tracker: Tracker) -> BuilderError:
    if known.family == "bug":
        known.message = f"in step {tracker.current}: {known.message}"
    return known
