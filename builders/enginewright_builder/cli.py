"""``enginewright-build``: in a Job by request file, or by hand on any machine."""

from __future__ import annotations

import argparse
import logging
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from enginewright_builder.by_hand import build_by_hand, parse_by_hand
from enginewright_builder.contract import EXIT_OK, BuildRequest, ContractError, Outcome, dumps
from enginewright_builder.doctor import doctor
from enginewright_builder.engine_store import bucket_gc, captures, folder_gc
from enginewright_builder.errors import EXIT_CODES, classify, exit_code
from enginewright_builder.logs import log_to_stderr
from enginewright_builder.objectstore.bucket import Bucket
from enginewright_builder.offline.command import batch
from enginewright_builder.pipeline import failure, run_build, run_finalists, run_proof, run_resolve
from enginewright_builder.progress import JsonLines, Sink, Tracker, own_stdout
from enginewright_builder.source_variables import take_source_variables
from enginewright_builder.system import available_cpus, limit_threads
from enginewright_builder.termination import leave_outcome
from enginewright_builder.tracing import tracing
from enginewright_builder.triton.key import leave_key
from enginewright_builder.triton.patience import READY_SECONDS

if TYPE_CHECKING:
    from enginewright_builder.generate.supervised import Supervised
    from enginewright_builder.proving import GivenServer

Run = Callable[[BuildRequest, Path, Tracker], Outcome | None]


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    log_to_stderr(logging.WARNING, "%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, _interrupt)
    take_source_variables(os.environ)
    # Before any numeric library is imported.
    limit_threads(available_cpus())
    if words[:1] == ["resolve"]:
        return _job("resolve", Path(_job_parser("resolve").parse_args(words[1:]).request), run_resolve)
    if words[:1] == ["build"]:
        return _build(_build_parser().parse_args(words[1:]))
    if words[:1] == ["prove"]:
        return _prove(_proof_options(words[1:]))
    if words[:1] == ["python-steps"]:
        return _python_steps(_python_steps_parser().parse_args(words[1:]))
    if words[:1] == ["batch"]:
        return batch(words[1:])
    if words[:1] == ["gc"]:
        return _collect(_gc_parser().parse_args(words[1:]))
    if words[:1] == ["captures"]:
        return _captures(_captures_parser().parse_args(words[1:]))
    if words[:1] == ["mlperf"]:
        from enginewright_builder.mlperf.command import mlperf

        return mlperf(words[1:])
    if words[:1] == ["doctor"]:
        return doctor(words[1:])
    return build_by_hand(parse_by_hand(words))


def _interrupt(number: int, frame: FrameType | None) -> None:
    """An evicted pod gets SIGTERM and a few seconds: enough to say so in the termination message."""
    raise KeyboardInterrupt


def _job(kind: str, path: Path, run: Run, place: Path | None = None) -> int:
    with tracing(kind, JsonLines(own_stdout())) as sink:
        tracker = Tracker(sink)
        with tempfile.TemporaryDirectory(prefix="enginewright-build-", dir=place,
                                         ignore_cleanup_errors=True) as scratch:
            try:
                request = BuildRequest.from_json(path.read_text(encoding="utf-8"))
            except BaseException as error:
                outcome = failure(kind, error, tracker)
            else:
                ended = run(request, Path(scratch), tracker)
                if ended is None:  # another program goes on
                    return EXIT_OK
                outcome = ended
        return _end(outcome, sink)


def _end(outcome: Outcome, sink: Sink) -> int:
    sink.outcome(outcome)
    leave_outcome(outcome)
    return exit_code(outcome)


def _build(options: argparse.Namespace) -> int:
    if options.hand_over is None:
        return _job("build", Path(options.request), run_build)

    def finalists(request: BuildRequest, scratch: Path, tracker: Tracker) -> Outcome | None:
        if options.key_file:
            leave_key(options.key_file)
        if options.program:
            from enginewright_builder.supervise import leave

            leave(options.program)
        if options.repository:  # by the process that writes there, before a server mounts it
            options.repository.mkdir(parents=True, exist_ok=True)
        return run_finalists(request, scratch, tracker, options.hand_over)

    # In the same volume, where a link is as good as a copy.
    return _job("build", Path(options.request), finalists, options.hand_over.parent)


def _prove(options: argparse.Namespace) -> int:
    servers = _given(options) if options.repository else None
    with tracing("build", JsonLines(own_stdout())) as sink:
        return _end(run_proof(options.hand_over, servers, Tracker(sink), _supervised(options)), sink)


def _python_steps(options: argparse.Namespace) -> int:
    from enginewright_builder.models.own_steps_process import serve

    serve(options.socket)
    return EXIT_OK


def _supervised(options: argparse.Namespace) -> Supervised | None:
    """Of language models; None where this program starts them."""
    if options.control is None:
        return None
    from enginewright_builder.generate.supervised import Supervised

    return Supervised(options.control, options.witness)


def _given(options: argparse.Namespace) -> GivenServer:
    from enginewright_builder.proving import GivenServer
    from enginewright_builder.triton.client import Address
    from enginewright_builder.triton.witness import Witness

    headers = {options.key_header: options.key_file.read_text().strip()} if options.key_file else {}
    return GivenServer(repository=options.repository, headers=headers, ready_seconds=options.ready_seconds,
                       witness=Witness(options.witness, options.repository) if options.witness else None,
                       address=Address(http=options.http, grpc=options.grpc, metrics=options.metrics))


def _collect(options: argparse.Namespace) -> int:
    """One JSON line of what was removed, or of the error."""
    try:
        rules = {"grace_seconds": options.grace, "keep": options.keep, "remove": options.remove}
        found = (bucket_gc.collect(Bucket(options.store), **rules) if "://" in options.store
                 else folder_gc.collect(Path(options.store), **rules))
    except BaseException as error:
        known = classify(error)
        print(dumps(known.report()))
        return EXIT_CODES[known.family]
    print(dumps(found))
    return EXIT_OK


def _captures(options: argparse.Namespace) -> int:
    """One JSON line of how much was removed, or of the error."""
    try:
        removed = sum(captures.remove_all(folder) if options.all else captures.prune(folder, time.time())
                      for folder in (captures.captures_of(options.store, one) for one in options.of))
    except BaseException as error:
        known = classify(error)
        print(dumps(known.report()))
        return EXIT_CODES[known.family]
    print(dumps({"removed": removed}))
    return EXIT_OK


def _job_parser(kind: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"enginewright-build {kind}")
    parser.add_argument("--request", required=True, metavar="FILE", help="build request, JSON (contract version 1)")
    return parser


def _build_parser() -> argparse.ArgumentParser:
    parser = _job_parser("build")
    parser.add_argument("--hand-over", type=Path, metavar="DIR",
                        help="only build, and leave the input of `enginewright-build prove` there")
    parser.add_argument("--key-file", type=Path, metavar="FILE",
                        help="make a key for the model control of the server that comes after, and write it there")
    parser.add_argument("--repository", type=Path, metavar="DIR", help="create the folder of that server's models")
    parser.add_argument("--program", type=Path, metavar="DIR",
                        help="leave the program there that runs vLLM beside `enginewright-build prove --control`")
    return parser


def _proof_options(words: Sequence[str]) -> argparse.Namespace:
    parser = _prove_parser()
    options = parser.parse_args(words)
    if options.control and not options.witness:
        parser.error("--control needs --witness, the folder where the program that reads there writes")
    return options


def _prove_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="enginewright-build prove",
        description="Serve, measure and publish what a build left, on a tritonserver that runs with "
                    "--model-control-mode=explicit. A language model needs no option but --hand-over: this program "
                    "starts vLLM, or has it started in another container with --control and --witness.")
    parser.add_argument("--hand-over", required=True, type=Path, metavar="DIR", help="folder that the build left")
    parser.add_argument("--repository", type=Path, metavar="DIR",
                        help="needed for a model of tensors: the server's model repository, as this program sees it; "
                             "it writes there")
    for name, port in (("http", 8000), ("grpc", 8001), ("metrics", 8002)):
        parser.add_argument(f"--{name}", default=f"127.0.0.1:{port}", metavar="HOST:PORT",
                            help="address of the server (default %(default)s)")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="key of the server's model control")
    parser.add_argument("--key-header", default="enginewright-model-control", metavar="NAME",
                        help="header that carries the key (default %(default)s)")
    parser.add_argument("--control", type=Path, metavar="DIR",
                        help="for a language model: folder where the program in the server's container reads what to "
                             "start")
    parser.add_argument("--witness", type=Path, metavar="DIR", help="folder where the server's container writes its "
                                                                    "state")
    parser.add_argument("--ready-seconds", type=_seconds, default=READY_SECONDS, metavar="S",
                        help="seconds to wait for the server (default %(default)g)")
    return parser


def _python_steps_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="enginewright-build python-steps",
        description="Run the functions of a source's folder for a build in another container, which has what these "
                    "may not see.")
    parser.add_argument("--socket", required=True, type=Path, metavar="FILE", help="Unix socket to make")
    return parser


def _gc_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="enginewright-build gc",
                                     description="Remove engines that no model uses, and what dead builds left behind.")
    parser.add_argument("--store", required=True, metavar="DIR", help="engine store: a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
    parser.add_argument("--grace", required=True, type=_seconds, metavar="SECONDS",
                        help="seconds; keep engines published or used within this time")
    parser.add_argument("--keep", nargs="*", default=(), type=_fingerprint, metavar="FINGERPRINT",
                        help="fingerprints in use, never removed")
    parser.add_argument("--remove", nargs="*", type=_fingerprint, metavar="FINGERPRINT",
                        help="only these (default: all)")
    return parser


def _captures_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="enginewright-build captures",
                                     description="Remove captured requests that have expired, or all of them.")
    parser.add_argument("--store", required=True, type=Path, metavar="DIR", help="folder of the engine store")
    parser.add_argument("--of", required=True, nargs="+", type=_namespaced, metavar="NAMESPACE/MODEL",
                        help="whose captures")
    parser.add_argument("--all", action="store_true", help="also those that have not expired")
    return parser


def _namespaced(text: str) -> str:
    try:
        captures.captures_of(Path(), text)
    except ContractError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


def _fingerprint(text: str) -> str:
    if not folder_gc.FINGERPRINT.fullmatch(text):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected 64 hex digits")
    return text


