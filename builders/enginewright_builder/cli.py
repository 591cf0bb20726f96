"""``enginewright-build``: in a Job by request file, or by hand on any machine."""

from __future__ import annotations

import argparse
import logging
import math
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from enginewright_builder import store_gc
from enginewright_builder.bucket import gc as bucket_gc
from enginewright_builder.bucket.client import Bucket
from enginewright_builder.by_hand import build_by_hand, parse_by_hand
from enginewright_builder.contract import EXIT_OK, BuildRequest, Outcome, dumps
from enginewright_builder.doctor import doctor
from enginewright_builder.errors import EXIT_CODES, classify, exit_code
from enginewright_builder.pipeline import failure, run_build, run_resolve
from enginewright_builder.progress import JsonLines, Tracker, own_stdout
from enginewright_builder.system import available_cpus, limit_threads
from enginewright_builder.tracing import tracing

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
    if words[:1] == ["gc"]:
        return _collect(_gc_parser().parse_args(words[1:]))
    if words[:1] == ["doctor"]:
        return doctor(words[1:])
    return build_by_hand(parse_by_hand(words))


def _interrupt(number: int, frame: FrameType | None) -> None:
    """An evicted pod gets SIGTERM and a few seconds: enough to say so in the termination message."""
    raise KeyboardInterrupt


def _job(kind: str, path: Path, run: Run) -> int:
    with tracing(kind, JsonLines(own_stdout())) as sink:
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


def _collect(options: argparse.Namespace) -> int:
    """One JSON line of what was removed, or of the error."""
    try:
        rules = {"grace_seconds": options.grace, "keep": options.keep, "remove": options.remove}
        found = (bucket_gc.collect(Bucket(options.store), **rules) if "://" in options.store
                 else store_gc.collect(Path(options.store), **rules))
    except BaseException as error:
        known = classify(error)
        print(dumps(known.report()))
        return EXIT_CODES[known.family]
    print(dumps(found))
    return EXIT_OK


def _write_termination_message(outcome: Outcome) -> None:
    path = Path(os.environ.get("ENGINEWRIGHT_TERMINATION_LOG", TERMINATION_LOG))
    if "ENGINEWRIGHT_TERMINATION_LOG" in os.environ or path.exists():
        path.write_text(outcome.to_termination_message(), encoding="utf-8")


def _job_parser(kind: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"enginewright-build {kind}")
    parser.add_argument("--request", required=True, metavar="FILE", help="build request, JSON (contract version 1)")
    return parser


def _gc_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="enginewright-build gc",
                                     description="Remove engines that nobody uses, and what dead builds left behind.")
    parser.add_argument("--store", required=True, metavar="DIR", help="engine store: a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
    parser.add_argument("--grace", required=True, type=_seconds, metavar="SECONDS",
                        help="spare what was published or wanted within this time")
    parser.add_argument("--keep", nargs="*", default=(), type=_fingerprint, metavar="FINGERPRINT",
                        help="in use: never removed")
    parser.add_argument("--remove", nargs="*", type=_fingerprint, metavar="FINGERPRINT",
                        help="look at these alone (default: at all)")
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


def _fingerprint(text: str) -> str:
    if not store_gc.FINGERPRINT.fullmatch(text):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected 64 hex digits")
    return text


