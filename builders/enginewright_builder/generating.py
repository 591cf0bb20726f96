"""The build of a language model, once it is clear that there is something to build: candidates, settings, and what is
published. ``building`` and ``proving`` are the same of models that Triton serves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from enginewright_builder import own_device
from enginewright_builder.contract import (
    DRAFT_FOLDER,
    LANGUAGE_MODEL_FOLDER,
    OBJECTIVE_MET,
    SMOKE_FILE,
    BuildRequest,
    CandidateSummary,
    GenerateRequest,
    GenerateSummary,
    Outcome,
    TokenFigures,
)
from enginewright_builder.engine_store import store
from enginewright_builder.engine_store.manifest import manifest_digest
from enginewright_builder.evidence.content import hardware, in_words, versions
from enginewright_builder.generate.ability import Ability, ability
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.candidates import candidates, drafted, ground, listed, reference
from enginewright_builder.generate.competition import candidates_of, settings_of
from enginewright_builder.generate.figures import Objective
from enginewright_builder.generate.gate import Judgement
from enginewright_builder.generate.kept_prompts import keep_prompts
from enginewright_builder.generate.reach import unreached
from enginewright_builder.generate.reading import lengths
from enginewright_builder.generate.resolving import ResolvedModel
from enginewright_builder.generate.server import VllmServer
from enginewright_builder.generate.serving import SERVER, Serving, serving, write_serving
from enginewright_builder.generate.shipping import Result, chosen
from enginewright_builder.generate.smoke_record import smoke_file
from enginewright_builder.generate.sweep import Aim, Point, shown, to_show
from enginewright_builder.generate.trial import Bench, Open, Trial
from enginewright_builder.generate.work import work_of
from enginewright_builder.load import run_on_time
from enginewright_builder.machine import Machine, look
from enginewright_builder.report.generation import GenerateReport, prompts
from enginewright_builder.report.generation_page import write_generate_report
from enginewright_builder.report.performance import device_class
from enginewright_builder.sources.causal import weight_bytes
from enginewright_builder.sources.digest import sorted_files
from enginewright_builder.sources.formats import PICKLE_SUFFIXES, size_bytes
from enginewright_builder.steps import Budget, Steps, now
from enginewright_builder.triton.repository import place

# Of the time budget, what each configuration gets of load, in seconds: more adds little certainty.
LOAD_SHARE, LOAD_SECONDS = 0.03, (3.0, 40.0)
# Likewise, for each of what the gate compares beside the beginnings of all answers.
REACH_SHARE, REACH_SECONDS = 0.02, (3.0, 60.0)
# What no server reads: weights that would run code when they are opened, and code.
_LEFT_OUT = (*PICKLE_SUFFIXES, ".py")


def build_model(resolved: ResolvedModel, scratch: Path, steps: Steps, budget: Budget,
                server: Open = VllmServer, look: Callable[[], Machine] = look) -> Outcome:
    """Builds, proves and publishes. ``look`` says what there is where ``server`` starts servers. Raises
    :class:`BuilderError`, or anything for a bug; nothing is published then."""
    request, machine = resolved.request, look()
    own_device.check(request.device, steps.tracker.note, machine)
    here = ability(request.device, machine)
    with steps.step("fetch", "reading the prompts as the model does"):
        read = _read(resolved)
    aim = _aim(request)
    bench = Bench(folder=resolved.model.path, asks=resolved.asks, aim=aim, tolerance=request.accuracy.tolerance,
                  load_seconds=budget.share(LOAD_SHARE, LOAD_SECONDS),
                  reach_seconds=budget.share(REACH_SHARE, REACH_SECONDS), budget=budget, open=server,
                  checkpoints={name: one.path for name, one in resolved.checkpoints.items()},
                  drafts={name: one.path for name, one in resolved.drafts.items()}, stop_when=request.engine.stop_when)
    result = run_on_time(_compete(bench, resolved, read, here, steps))
    document = serving(result, aim, request.accuracy.tolerance)
    outcome = Outcome(kind="build", ok=True, source=resolved.source, fingerprint=request.fingerprint(), built=now(),
                      build_seconds=round(budget.spent, 1), candidates=tuple(map(summary, result.trials)),
                      generate=_published(resolved, result, document, machine))
    with steps.step("publish", "writing the report and publishing"):
        staging = scratch / "staging"
        staging.mkdir()
        _place_model(resolved.folder(document.checkpoint), staging / LANGUAGE_MODEL_FOLDER)
        if draft := document.settings.draft:
            _place_model(resolved.drafts[draft].path, staging / DRAFT_FOLDER)
        write_serving(document, staging)
        _place_reference(request, result, staging)
        write_generate_report(_report(resolved, outcome, result, read, steps, aim, machine), staging)
        manifest = store.of(request, steps.tracker.note).publish(staging, request.fingerprint(), outcome=outcome)
    steps.tracker.step("done", "published")
    return dataclasses.replace(manifest.outcome, manifest_digest=manifest_digest(manifest))


async def _compete(bench: Bench, resolved: ResolvedModel, read: list[int], here: Ability, steps: Steps) -> Result:
    base = _ground(resolved, read, here)
    async with aclosing(bench.last):
        with steps.step("ladder", "serving the unquantised model") as report:
            every = [*listed(resolved.checkpoints, base), *drafted(resolved.drafts, resolved.model, base),
                     *candidates(resolved.model, here, base)]
            trials, known = await candidates_of(bench, reference(base), every, report)
        with steps.step("sweep", "trying settings of the server") as report:
            return await settings_of(bench, trials, known, longest=max(read), gpu=here.gpu, progress=report)


def _read(resolved: ResolvedModel) -> list[int]:
    wishes, model = _wishes(resolved.request), resolved.model
    return lengths(model.path, resolved.asks, wishes.context_tokens or model.context)


def _ground(resolved: ResolvedModel, read: list[int], here: Ability) -> ServerArguments:
    longest = max(length + ask.max_tokens for length, ask in zip(read, resolved.asks, strict=True))
    return ground(resolved.model, here, longest=longest, weights=weight_bytes(resolved.model.path),
                  context=_wishes(resolved.request).context_tokens)


def _wishes(request: BuildRequest) -> GenerateRequest:
    if request.generate is None:
        raise ValueError("no request for a language model")
    return request.generate


def _aim(request: BuildRequest) -> Aim:
    wishes = _wishes(request)
    return Aim(objective=Objective(ttft_ms=wishes.ttft_ms, tpot_ms=wishes.tpot_ms),
               percentile=request.objective.latency_percentile)


def summary(trial: Trial) -> CandidateSummary:
    """Accuracy is the agreement of next tokens."""
    accuracy, accuracy_low = _agreement(trial.judgement) if trial.judgement else (None, None)
    return CandidateSummary(
        backend=SERVER, precision=trial.precision, batch=0, verdict=trial.verdict, reason=trial.reason, name=trial.name,
        accuracy=accuracy, accuracy_low=accuracy_low, tokens=_tokens(trial.best) if trial.points else None,
        build_seconds=round(trial.start_seconds, 1) if trial.start_seconds else None,
        gate_seconds=round(trial.gate_seconds, 1) if trial.gate_seconds else None)


def _published(resolved: ResolvedModel, result: Result, document: Serving, machine: Machine) -> GenerateSummary:
    accuracy, accuracy_low = _agreement(document.gate)
    devices, count = device_class(resolved.request.device)
    draft = document.settings.draft
    folders = [resolved.folder(document.checkpoint), *([resolved.drafts[draft].path] if draft else [])]
    return GenerateSummary(
        name=document.name, precision=document.precision, server=document.server,
        server_version=document.server_version, words=document.words, environment=document.environment,
        gain=result.gain, tokens=_tokens(document.load),
        objective_met=shown(document.load, document.aim),
        requests=document.load.again if document.aim.asked else 0,
        requests_to_show=to_show(document.load, document.aim), accuracy=accuracy, accuracy_low=accuracy_low,
        noise_floor=round(document.gate.disagreement.floor, 6),
        divergence_high=round(document.gate.divergence.high, 6), prompts=document.gate.prompts,
        device=hardware(resolved.request.device, machine).device, device_class=devices, device_count=count,
        load_seconds=round(document.start_seconds, 1), size_bytes=sum(map(size_bytes, folders)),
        memory_bytes=document.memory_bytes, work=work_of(result.shipped.points, document.load),
        checkpoint=document.checkpoint, draft=draft)


def _agreement(judgement: Judgement) -> tuple[float, float]:
    """And its lower bound: what the reference itself loses, and by the upper bound what is lost beyond that."""
    loss = judgement.disagreement
    return round(1 - loss.value, 6), round(max(0.0, 1 - loss.floor - loss.high), 6)


def _tokens(point: Point) -> TokenFigures:
    found, guessed = point.figures, point.speculated
    return TokenFigures(
        concurrency=point.concurrency, ttft_p50_ms=round(found.ttft_ms.p50, 2), ttft_p99_ms=round(found.ttft_ms.p99, 2),
        tpot_p50_ms=round(found.tpot_ms.p50, 2), tpot_p99_ms=round(found.tpot_ms.p99, 2),
        output_rate=round(found.output_rate, 2), goodput=round(found.goodput, 3),
        proposed=guessed.proposed if guessed else 0, accepted=guessed.accepted if guessed else 0)


def _place_model(source: Path, target: Path) -> None:
    """All files but those that no server reads."""
    for relative, file in sorted_files(source):
        if file.suffix not in _LEFT_OUT:
            place(file, target / relative)


def _place_reference(request: BuildRequest, result: Result, staging: Path) -> None:
    """What replicas are tried with before any traffic, and while they serve."""
    shipped, found = result.shipped, result.known.yardstick
    smoke = smoke_file(found.records, shipped.smoke_prompts, shipped.smoke_tokens)
    (staging / SMOKE_FILE).write_text(smoke, encoding="utf-8")
    if request.keep_reference:
        keep_prompts(staging, found.records, found.floor, request.accuracy.tolerance)


def _report(resolved: ResolvedModel, outcome: Outcome, result: Result, read: list[int], steps: Steps,
            aim: Aim, machine: Machine) -> GenerateReport:
    request = resolved.request
    return GenerateReport(
        model_name=request.model_name, fingerprint=outcome.fingerprint, created=outcome.built,
        command=command(request), source_uri=request.source.uri, source_digest=request.source.digest,
        checkpoints=_wishes(request).checkpoints, drafts=_wishes(request).drafts,
        architecture=resolved.model.architecture, context=resolved.model.context,
        prompts=prompts(read, [ask.max_tokens for ask in resolved.asks]), trials=result.trials,
        serving=serving(result, aim, request.accuracy.tolerance), default=result.default,
        gain=result.gain, confirmed=result.confirmed, hardware=hardware(request.device, machine),
        versions=versions({"vllm": result.known.version}), steps=dict(steps.seconds),
        notes=(*resolved.notes, *_notes(result, aim, _wishes(request))))


def _notes(result: Result, aim: Aim, wishes: GenerateRequest) -> list[str]:
    notes = [f"The files that ship are those of checkpoint {one.name}, from {one.uri} ({one.digest})."
             for one in wishes.checkpoints if one.name == result.shipped.checkpoint]
    notes += [f"Draft {one.name} ships beside them, from {one.uri} ({one.digest})."
              for one in wishes.drafts if one.name == result.shipped.arguments.draft]
    if aim.asked and not result.shipped.best.meets:
        notes.append(f"No configuration kept the objective for {aim.percentile:g} % of the requests: the one with the "
                     "most requests a second that keep it ships.")
    if needed := to_show(result.shipped.best, aim):
        notes.append(f"Whether the objective is met is not known: {result.shipped.best.again:,} requests kept it when "
                     f"the load was put on once more, and it takes {needed:,} to say so. Write a larger "
                     "buildBudgetSeconds and rebuild, or ask for a lower percentile.")
    if not result.shipped.best.again:
        notes.append("No time was left to put the load that ships on once more: its figures are those that it was "
                     "chosen by. Write a larger buildBudgetSeconds and rebuild.")
    assert result.shipped.judgement is not None
    notes += unreached(result.shipped.judgement, result.known.yardstick, result.shipped.arguments)
    if not result.confirmed and chosen(result.trials).name != result.trials[0].name:
        notes.append("vLLM's own settings ship: they could not be measured again at the end, and only what is better "
                     "than both measurements ships. Write a larger buildBudgetSeconds and rebuild.")
    return notes


def command(request: BuildRequest) -> str:
    """The same build by hand. Options at their defaults are left out."""
    wishes, evaluation = _wishes(request), request.accuracy.evaluation
    options = {
        "--task": "generate", "--model": request.source.uri, "--evaluation": evaluation.uri if evaluation else "",
        "--tolerance": f"{request.accuracy.tolerance:g}", "--ttft-ms": f"{wishes.ttft_ms:g}" if wishes.ttft_ms else "",
        "--tpot-ms": f"{wishes.tpot_ms:g}" if wishes.tpot_ms else "",
        "--context": str(wishes.context_tokens or ""), "--budget-seconds": str(request.engine.build_budget_seconds),
        "--stop-when": OBJECTIVE_MET if request.engine.stop_when == OBJECTIVE_MET else ""}
    named = [("--checkpoint", wishes.checkpoints), ("--draft", wishes.drafts)]
    return in_words(options, [word for option, listed in named for one in listed
                              for word in (option, f"{one.name}={one.uri}")])
