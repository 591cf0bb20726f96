"""``enginewright-build batch``: one shard of a data set, answered by a server that runs beside this program."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from enginewright_builder.contract import Outcome, Progress
from enginewright_builder.errors import BuilderError, TransientError, classify, exit_code
from enginewright_builder.progress import JsonLines, own_stdout
from enginewright_builder.termination import leave_outcome
from enginewright_builder.triton.patience import READY_SECONDS

# What the Job controller tells each pod of an Indexed Job.
INDEX = "JOB_COMPLETION_INDEX"


def batch(words: Sequence[str]) -> int:
    """JSON lines of progress, and the outcome as the last of them. Returns the exit status."""
    options = _parser().parse_args(words)
    sink = JsonLines(own_stdout())
    try:
        outcome = _shard(options, sink)
    except BaseException as error:
        outcome = Outcome(kind="batch", ok=False, error=_known(error).report())
    sink.outcome(outcome)
    leave_outcome(outcome)
    return exit_code(outcome)


def _shard(options: argparse.Namespace, sink: JsonLines) -> Outcome:
    # Late: numeric libraries need their number of threads before.
    from enginewright_builder.offline.shard import Asked, run_shard

    asked = Asked(
        input=options.input, output=options.output, engine=options.engine, model=options.model, shard=options.shard,
        shards=options.shards, http=options.http, grpc=options.grpc, ready_seconds=options.ready_seconds,
        chunk_rows=options.chunk_rows)
    summary = run_shard(asked, lambda fraction, detail: sink.progress(
        Progress(step="batch", fraction=round(fraction, 4), detail=detail)))
    return Outcome(kind="batch", ok=True, fingerprint=options.engine, shard=summary)


def _known(error: BaseException) -> BuilderError:
    if isinstance(error, KeyboardInterrupt):
        return TransientError("Interrupted", "the shard was interrupted; files of answers that are there stay")
    return classify(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="enginewright-build batch",
        description="Answer the rows of a file by a tritonserver that runs beside this program, into a folder. Started "
                    "again after it was ended in any way, it goes on with the rows that have no answers.")
    parser.add_argument("--input", required=True, type=Path, metavar="FILE",
                        help=".npz with one array an input, or .jsonl with one object a line")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR",
                        help="folder of answers, on a file system with hard links; the same one for all shards")
    parser.add_argument("--model", required=True, metavar="NAME", help="name that the server has for the engine")
    parser.add_argument("--engine", required=True, metavar="FINGERPRINT",
                        help="the engine's fingerprint, as its manifest.json has it: answers of two engines are not "
                             "mixed in one folder")
    parser.add_argument("--shards", type=_positive, default=1, metavar="N", help="parts of the file (default 1)")
    parser.add_argument("--shard", type=int, default=int(os.environ.get(INDEX, "0")), metavar="I",
                        help=f"the part to answer, from 0 (default {INDEX}, or 0)")
    parser.add_argument("--chunk-rows", type=_positive, default=0, metavar="N",
                        help="rows of one file of answers: what is asked again after a kill (default: up to 4096, by "
                             "their size)")
    for name, port in (("http", 8000), ("grpc", 8001)):
        parser.add_argument(f"--{name}", default=f"127.0.0.1:{port}", metavar="HOST:PORT",
                            help="address of the server (default %(default)s)")
    parser.add_argument("--ready-seconds", type=_positive, default=READY_SECONDS, metavar="S",
                        help="seconds to wait for the server, also when it goes away meanwhile (default %(default)d)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
