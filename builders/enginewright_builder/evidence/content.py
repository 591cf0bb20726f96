"""The build report's content: everything someone needs to check or repeat what was claimed."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from enginewright_builder import installed
from enginewright_builder.accuracy.groups import reported, summary
from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DeviceRequest,
    EngineRequest,
    Outcome,
    as_written,
    canonical,
)
from enginewright_builder.data.sets import SYNTHETIC
from enginewright_builder.hand_over import HandOver
from enginewright_builder.machine import Machine
from enginewright_builder.pod.device import devices
from enginewright_builder.report import AccuracyEvidence, BuildReport, Hardware, Reference
from enginewright_builder.report.performance import Performance
from enginewright_builder.sweep import SweepResult
from enginewright_builder.system import available_cpus, cpu_name, memory_bytes
from enginewright_builder.triton.prove import Proof

if TYPE_CHECKING:  # the second half of a build needs none of the first
    from enginewright_builder.competition.ladder import Climb
    from enginewright_builder.data.sets import SampleSet


def build_report(document: HandOver, outcome: Outcome, swept: SweepResult, proof: Proof, config_pbtxt: str,
                 steps: Mapping[str, float], performance: Performance) -> BuildReport:
    if outcome.engine is None or outcome.serving is None:
        raise ValueError("only a build that ended well has a report")
    request = document.request
    return BuildReport(
        model_name=request.model_name, fingerprint=outcome.fingerprint, created=outcome.built,
        command=command(request), source_uri=request.source.uri, source_digest=request.source.digest,
        source_format=document.source.format, interface=document.engines[document.served[0].engine].interface,
        reference=document.reference, candidates=outcome.candidates, engine=outcome.engine, accuracy=document.accuracy,
        objective=request.objective, serving=outcome.serving, config_pbtxt=config_pbtxt, sweep=swept,
        performance=performance, drift=dict(document.drift), profiles=document.profiles, hardware=document.hardware,
        versions=versions({"tritonserver": proof.server_version}),
        steps=dict(steps), notes=_notes(document, proof))


def accuracy_evidence(request: BuildRequest, climbed: Climb, evaluation: SampleSet) -> AccuracyEvidence:
    found = climbed.accuracy
    judged = {one.name: one.accuracy.groups for one in climbed.built if one.accuracy and one.accuracy.groups}
    served = [figure for name in sorted(set(climbed.shipped.values())) for figure in judged.get(name, ())]
    return AccuracyEvidence(metric=found.metric, value=found.value, low=found.low,
                            tolerance=request.accuracy.tolerance, samples=found.samples, evaluation=evaluation.origin,
                            task=found.task, summary=summary(request.accuracy.group_by, served),
                            groups={name: reported(figures) for name, figures in judged.items()})


def reference_figures(name: str, climbed: Climb) -> Reference:
    timing = climbed.reference
    return Reference(name=name, batch=climbed.batch, p50_ms=timing.percentile(50), p95_ms=timing.percentile(95),
                     p99_ms=timing.percentile(99), throughput=timing.throughput)


def hardware(device: DeviceRequest, seen: Machine | None = None) -> Hardware:
    """Of this machine, and the device that this process has, or a container of this machine that has ``seen`` it."""
    return Hardware(device=device_name(device, seen), cores=seen.cores if seen else available_cpus(),
                    memory_bytes=memory_bytes(), architecture=device.architecture, gpus=device.products)


def device_name(device: DeviceRequest, machine: Machine | None = None) -> str:
    """The GPU as its driver names it, with the MIG profile after it; without a driver, what was asked for."""
    if device.accelerator != "gpu":
        return cpu_name()
    there = machine.gpus if machine else devices()
    seen = next((one.whole for one in there), "")
    return " ".join(filter(None, (seen or (device.products[0] if device.products else "GPU"), device.mig_profile)))


def versions(server: Mapping[str, str]) -> dict[str, str]:
    """Of the builder's packages, and of the server by its name."""
    return {**installed.versions(), **server}


def command(request: BuildRequest) -> str:
    """The same build by hand. Options at their defaults are left out."""
    engine, accuracy = request.engine, request.accuracy
    options = {
        "--model": request.source.uri, "--interface": canonical(stated(request.interface)) if request.interface else "",
        "--evaluation": accuracy.evaluation.uri if accuracy.evaluation else "",
        "--calibration": engine.calibration.uri if engine.calibration else "",
        "--metric": accuracy.metric, "--tolerance": f"{accuracy.tolerance:g}", **_beside(accuracy),
        "--precision": engine.precision,
        "--backend": engine.backend if engine.backend != EngineRequest.backend else "",
        "--max-batch-size": str(engine.max_batch_size), "--budget-seconds": str(engine.build_budget_seconds),
        "--stop-when": engine.stop_when if engine.stop_when != EngineRequest.stop_when else "",
        "--fallback": engine.fallback if engine.fallback != "none" else "",
        "--latency-ms": f"{request.objective.latency_ms:g}" if request.objective.latency_ms else "",
    }
    return in_words(options, ["--profile"] if engine.profile else ())


def unsaid(request: BuildRequest) -> str:
    """A sentence on what :func:`command` has no option for; empty where it says all."""
    parts = {"objective": dataclasses.replace(request.objective, latency_ms=0.0), "batching": request.batching,
             "instances": request.instances}
    found = [f"{part}.{name} {as_written(value)}" for part, document in parts.items()
             for name, value in stated(document).items()]
    return f"The command builds without {', '.join(found)}: it has no option for that." if found else ""


def stated(document: Any) -> Any:
    """As JSON, what is not at its default."""
    if not dataclasses.is_dataclass(document):
        return [stated(one) for one in document] if isinstance(document, tuple) else document
    values = {one.name: (getattr(document, one.name), one.default) for one in dataclasses.fields(document)}
    return {name: stated(value) for name, (value, default) in values.items() if value != default}


def in_words(options: Mapping[str, str], more: Sequence[str] = ()) -> str:
    """The command with the options that have a value, and ``more`` words behind them."""
    words = ["enginewright-build", *(word for option, value in options.items() if value for word in (option, value))]
    return f"{shlex.join([*words, *more])} --output DIR"


def _beside(accuracy: AccuracyRequest) -> dict[str, str]:
    """Options about labels and groups."""
    task = accuracy.task
    on_labels = {
        "--task-metric": task.metric, "--labels": task.labels, "--task-tolerance": f"{task.tolerance:g}",
        "--task-output": task.output, "--queries": task.queries,
        "--threshold": "" if task.threshold is None else f"{task.threshold:g}",
    } if task else {}
    return {**on_labels, "--group-by": accuracy.group_by}


def _notes(document: HandOver, proof: Proof) -> tuple[str, ...]:
    notes = [*document.notes, *filter(None, [unsaid(document.request)])]
    if document.accuracy.evaluation == SYNTHETIC:
        notes.append("Accuracy was measured on synthetic inputs: give evaluation data like production's for a real "
                     "proof.")
    worst = proof.worst_difference
    notes.append("As served, answers are the engine's own" +
                 (f", but for {worst:.2e} of the largest value at most." if worst else "."))
    return tuple(notes)
