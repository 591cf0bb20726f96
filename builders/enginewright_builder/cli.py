"""``enginewright-build``: in a Job by request file, or by hand on any machine."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from types import FrameType
from typing import TextIO

from enginewright_builder.contract import (
    EXIT_OK,
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    DeviceRequest,
    EngineRequest,
    Interface,
    ObjectiveRequest,
    Outcome,
    SourceRequest,
    load,
)
from enginewright_builder.errors import EXIT_CODES
from enginewright_builder.pipeline import failure, run_build, run_resolve
from enginewright_builder.progress import JsonLines, Sink, Tracker
from enginewright_builder.system import available_cpus, limit_threads

TERMINATION_LOG = "/dev/termination-log"

Run = Callable[[BuildRequest, Path, Tracker], Outcome]


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, _interrupt)
    # Before any numeric library is imported.
    limit_threads(available_cpus())
    if words[:1] in (["build"], ["resolve"]):
        options = _job_parser(words[0]).parse_args(words[1:])
        return _job(words[0], Path(options.request), run_build if words[0] == "build" else run_resolve)
    return _by_hand(parse_by_hand(words))


def _interrupt(number: int, frame: FrameType | None) -> None:
    """An evicted pod gets SIGTERM and a few seconds: enough to say so in the termination message."""
    raise KeyboardInterrupt


def _job(kind: str, path: Path, run: Run) -> int:
    sink = JsonLines(own_stdout())
    tracker = Tracker(sink)
    with tempfile.TemporaryDirectory(prefix="enginewright-build-", ignore_cleanup_errors=True) as scratch:
        try:
            request = BuildRequest.from_json(path.read_text(encoding="utf-8"))
        except BaseException as error:
            outcome = failure(kind, error, tracker)
        else:
            outcome = run(request, Path(scratch), tracker)
    sink.outcome(outcome)
    _write_termination_message(outcome)
    return exit_code(outcome)


def exit_code(outcome: Outcome) -> int:
    return EXIT_OK if outcome.error is None else EXIT_CODES[outcome.error.family]


def own_stdout() -> TextIO:
    """Standard output for our lines alone: what libraries print, in Python or not, goes to standard error from here
    on."""
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return stream


def _write_termination_message(outcome: Outcome) -> None:
    path = Path(os.environ.get("ENGINEWRIGHT_TERMINATION_LOG", TERMINATION_LOG))
    if "ENGINEWRIGHT_TERMINATION_LOG" in os.environ or path.exists():
        path.write_text(outcome.to_termination_message(), encoding="utf-8")


def _by_hand(options: argparse.Namespace) -> int:
    stream = own_stdout()
    # Imported here: rich is not in the builder image.
    if options.json or not stream.isatty():
        sink: Sink = JsonLines(stream)
    else:
        from enginewright_builder.terminal import Terminal

        sink = Terminal(stream)
    output = Path(options.output).expanduser().resolve()
    tracker = Tracker(sink)
    with tempfile.TemporaryDirectory(prefix="enginewright-build-", ignore_cleanup_errors=True) as scratch:
        try:
            output.mkdir(parents=True, exist_ok=True)
            request = hand_request(options, output)
        except BaseException as error:
            outcome = failure("build", error, tracker)
        else:
            outcome = run_build(request, Path(scratch), tracker)
    sink.outcome(outcome)
    if outcome.ok:
        sys.stderr.write(f"engine and report: {output / outcome.fingerprint}\n")
    return exit_code(outcome)


def hand_request(options: argparse.Namespace, output: Path) -> BuildRequest:
    """The request that the operator would make of the same wishes. Raises :class:`ContractError`."""
    source = options.model.rstrip("/")
    name = options.name or re.sub(r"[^a-z0-9-]+", "-", PurePath(source).stem.lower()).strip("-") or "model"
    interface = load(Interface, options.interface) if options.interface else None
    calibration = DataRequest(uri=options.calibration) if options.calibration else None
    evaluation = DataRequest(uri=options.evaluation) if options.evaluation else None
    return BuildRequest(
        model_name=name, source=SourceRequest(uri=options.model, format=options.format), interface=interface,
        engine=EngineRequest(backend=options.backend, precision=options.precision, calibration=calibration,
                             max_batch_size=options.max_batch_size, build_budget_seconds=options.budget_seconds),
        accuracy=AccuracyRequest(metric=options.metric, tolerance=options.tolerance, evaluation=evaluation),
        objective=ObjectiveRequest(latency_ms=options.latency_ms), store_path=str(output),
        device=DeviceRequest(accelerator="cpu", architecture=platform.machine()))


def _job_parser(kind: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"enginewright-build {kind}")
    parser.add_argument("--request", required=True, metavar="FILE", help="build request, JSON (contract version 1)")
    return parser


def parse_by_hand(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="enginewright-build", description="Turn a model into a proven, optimised Triton model repository, with a "
                                               "report.",
        epilog="In a Job: enginewright-build resolve|build --request FILE. Exit status: 0 published, 2 yours to mend, "
               "3 worth another try, 1 a bug.")
    parser.add_argument("--model", required=True, metavar="URI", help="folder, file, or https:// address of the model")
    parser.add_argument("--output", required=True, metavar="DIR", help="engine store; made if absent")
    parser.add_argument("--name", metavar="NAME", help="name Triton serves the model under (default: the source's)")
    parser.add_argument("--format", default="auto", help="onnx, huggingface, exported-program, torchscript (default "
                        "auto)")
    parser.add_argument("--evaluation", metavar="FILE", help=".npz or .jsonl that candidates are held against the "
                        "source on")
    parser.add_argument("--calibration", metavar="FILE", help=".npz or .jsonl for static INT8; other samples than "
                        "these")
    parser.add_argument("--metric", default=AccuracyRequest.metric, help="cosine, relative-error, top1, spearman")
    parser.add_argument("--tolerance", type=float, default=AccuracyRequest.tolerance,
                        help="largest loss allowed, of 1 (default %(default)s)")
    parser.add_argument("--precision", default="auto", help="auto, fp32, int8, … (default auto: the ladder)")
    parser.add_argument("--backend", default="auto", help="auto, onnxruntime, tensorrt, torch (default auto)")
    parser.add_argument("--max-batch-size", type=int, default=EngineRequest.max_batch_size, metavar="N")
    parser.add_argument("--latency-ms", type=float, default=0.0, metavar="MS", help="99th percentile to keep under")
    parser.add_argument("--budget-seconds", type=int, default=EngineRequest.build_budget_seconds, metavar="S")
    parser.add_argument("--interface", metavar="JSON", help='where the source cannot tell: {"inputs": [{"name": …}]}')
    parser.add_argument("--json", action="store_true", help="JSON lines, as in a Job")
    return parser.parse_args(words)
