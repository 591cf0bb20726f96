"""Which configurations are tried: candidates, those together that gained, then the server's settings around the
best."""

from __future__ import annotations

from collections.abc import Sequence

from enginewright_builder.contract import OBJECTIVE_MET
from enginewright_builder.generate.candidates import Candidate, proposing, together
from enginewright_builder.generate.shipping import Progress, Result, chosen, described, keeps, ship, tries, with_again
from enginewright_builder.generate.speculation import better_number
from enginewright_builder.generate.sweep import LEAST_GAIN, gains, moves
from enginewright_builder.generate.trial import Bench, Known, Trial, ended
from enginewright_builder.sweep.objective import MOST_TRIES


async def candidates_of(bench: Bench, reference: Candidate, listed: Sequence[Candidate],
                        progress: Progress) -> tuple[list[Trial], Known]:
    """All that this device can do, the reference first, and each draft once more where it would gain with another
    number of tokens at once; then those together that serve better than the reference. Where the build is to stop
    early, no more than the user's own once one keeps the objective."""
    first, known = await bench.reference(reference)
    progress(1 / (len(listed) + 2), f"{first.name}: {described(first.best, bench.aim)}")
    trials, tried = [await _kept(bench, known, [], first)], list[Candidate]()

    async def attempt(candidate: Candidate, fraction: float) -> Trial:
        tried.append(candidate)
        enough = "" if candidate.listed or candidate.unavailable else _enough(bench, trials)
        trial = ended(candidate, "Skipped", enough) if enough else await bench.trial(candidate, known)
        trials.append(await _kept(bench, known, trials, trial))
        progress(fraction, f"{candidate.name}: {trials[-1].verdict}{_because(trials[-1], bench)}")
        return trials[-1]

    for number, candidate in enumerate(listed, 2):
        trial = await attempt(candidate, number / (len(listed) + 2))
        if not _enough(bench, trials) and (another := _better_draft(trial, first)):
            await attempt(another, number / (len(listed) + 2))
    if not _enough(bench, trials) and (merged := together(_that_gained(tried, trials), reference.arguments)):
        await attempt(merged, 1.0)
    return trials, known


async def _kept(bench: Bench, known: Known, trials: Sequence[Trial], trial: Trial) -> Trial:
    """Where the build is to stop at the objective, and ``trial`` seems to keep it: with its load put on once more, as
    what ships is. One of these tries is left for what ships, and the time that this takes."""
    seconds = min(bench.confirm_seconds, bench.left - known.again - known.confirm)
    seems = _stops(bench) and trial.verdict == "Passed" and trial.best.meets
    if not seems or seconds <= 0 or _enough(bench, trials) or tries(trials) >= MOST_TRIES - 1:
        return trial
    return with_again(trial, await bench.again(trial.candidate, trial.best, seconds))


def _stops(bench: Bench) -> bool:
    return bench.stop_when == OBJECTIVE_MET and bench.aim.asked


def _enough(bench: Bench, trials: Sequence[Trial]) -> str:
    """Why no more is tried though there is time; empty where that is not so."""
    found = next((one.name for one in trials if keeps(one, bench.aim)), "") if _stops(bench) else ""
    return f"spec.engine.stopWhen is {OBJECTIVE_MET}, and {found} keeps spec.objective.tokens" if found else ""


def _better_draft(trial: Trial, first: Trial) -> Candidate | None:
    """The same draft with as many tokens at once as its own measurement says; None where no other number would gain, or
    ``trial`` has no draft that passed. Both loads have as many requests in flight, as the best one of the draft has."""
    arguments = trial.arguments
    if not arguments.draft or trial.verdict != "Passed":
        return None
    found, tokens = trial.best, arguments.speculative_tokens or 0
    alone = next((one for one in first.points if one.concurrency == found.concurrency), None)
    if alone is None or found.speculated is None:
        return None
    better = better_number(found.speculated, tokens, with_ms=found.figures.tpot_ms.p50,
                           alone_ms=alone.figures.tpot_ms.p50, least=LEAST_GAIN)
    return None if better == tokens else proposing(better, arguments, trial.precision)


def _that_gained(tried: Sequence[Candidate], trials: Sequence[Trial]) -> list[Candidate]:
    """Those that serve better than the reference; of several with other weights the best one alone, and of several that
    speculate."""
    first = trials[0]
    better = {one.name: one.best.rank for one in trials[1:]
              if one.verdict == "Passed" and gains(one.best, first.best)}
    found = [one for one in tried if one.name in better]
    weights = max((one for one in found if one.other_weights), key=lambda one: better[one.name], default=None)
    guesses = max((one for one in found if one.speculates), key=lambda one: better[one.name], default=None)
    return [one for one in found if (one is weights or not one.other_weights)
            and (one is guesses or not one.speculates)]


async def settings_of(bench: Bench, trials: Sequence[Trial], known: Known, *, longest: int, gpu: bool,
                      progress: Progress) -> Result:
    """Each setting that serves better than the best so far stays, as long as there is time."""
    found, leader = list(trials), chosen(trials)
    planned = moves(leader.best.concurrency, longest=longest, gpu=gpu)
    for number, move in enumerate(planned):
        arguments = move.applied(leader.arguments)
        if arguments is None or _enough(bench, found):
            continue
        tried = await bench.trial(Candidate(name=f"{leader.name}, {move.name}", precision=leader.precision,
                                            arguments=arguments, checkpoint=leader.checkpoint), known, leader.best)
        found.append(tried := await _kept(bench, known, found, tried))
        progress(number / len(planned), f"{tried.name}: {tried.verdict}{_because(tried, bench)}")
        if tried.verdict == "Passed":
            leader = tried
    return await ship(bench, found, leader, known, progress)


def _because(trial: Trial, bench: Bench) -> str:
    return f": {trial.reason}" if trial.reason else f": {described(trial.best, bench.aim)}" if trial.points else ""
