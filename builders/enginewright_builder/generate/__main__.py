"""``python -m enginewright_builder.generate``: drive load in tokens by hand or from a pod, and print what happened."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from enginewright_builder.errors import BuilderError
from enginewright_builder.generate.answer import CUT, Answer
from enginewright_builder.generate.client import Ask, Client
from enginewright_builder.generate.figures import Figures, figures
from enginewright_builder.generate.load import closed_loop, open_loop
from enginewright_builder.generate.prompts import read_prompts
from enginewright_builder.load import poisson_arrivals, run_on_time

EXIT_USAGE = 2
_ENDLESS = sys.maxsize
# So many failures are listed one by one.
_TOLD = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 when the run ended as asked (failed requests are in the figures), 2 for bad input."""
    options = _parser().parse_args(arguments)
    try:
        asks = [dataclasses.replace(one, exact=options.exact) for one in read_prompts(Path(options.jsonl))]
    except BuilderError as error:
        print(f"load: {error.message}", file=sys.stderr)
        return EXIT_USAGE
    begin = time.monotonic()
    answers = run_on_time(_run(options, asks))
    found = figures(answers, begin=begin, end=time.monotonic())
    print(json.dumps(_plain(found, answers, begin)) if options.json else _text(found, answers))
    return 0


def cut_streams(answers: Sequence[Answer]) -> int:
    """Answers that ended, or failed, after their first token."""
    return sum(1 for one in answers if one.error and (one.arrivals or one.error == CUT))


async def _run(options: argparse.Namespace, asks: Sequence[Ask]) -> list[Answer]:
    async with _stopping(options.seconds) as stop, Client(
            options.url, model=options.model, limit_seconds=options.timeout,
            keep_connections=options.keep_connections) as client:
        if options.rate:
            arrivals = poisson_arrivals(options.rate, options.seed)
            return await open_loop(client, _until(stop, asks, options.seed), arrivals, seconds=options.seconds)
        return await closed_loop(client, _until(stop, asks, options.seed), concurrency=options.closed,
                                 requests=_ENDLESS)


@asynccontextmanager
async def _stopping(seconds: float) -> AsyncIterator[asyncio.Event]:
    """An event that is set after ``seconds``, or by the first SIGTERM or SIGINT."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop.set)
    timer = loop.call_later(seconds, stop.set)
    try:
        yield stop
    finally:
        timer.cancel()


def _until(stop: asyncio.Event, asks: Sequence[Ask], seed: int) -> Iterator[Ask]:
    """``asks`` in random order, again and again. Each has a salt of its own: no prefix cache answers for the model."""
    generator = random.Random(seed)  # noqa: S311 - not a secret
    while not stop.is_set():
        yield dataclasses.replace(generator.choice(asks), salt=str(generator.getrandbits(64)))


def _plain(found: Figures, answers: Sequence[Answer], begin: float) -> dict[str, Any]:
    messages: dict[str, str] = {}
    failures = sorted((one for one in answers if one.error), key=lambda one: one.end)
    for one in failures:
        messages.setdefault(one.error.partition(":")[0], one.error)
    told = [{"after_seconds": round(one.end - begin, 1), "sent_seconds": round(one.due - begin, 1),
             "tokens": sum(arrival.tokens for arrival in one.arrivals), "error": one.error} for one in failures[:_TOLD]]
    return {**dataclasses.asdict(found), "cut_streams": cut_streams(answers), "messages": messages, "failures": told}


def _text(found: Figures, answers: Sequence[Answer]) -> str:
    errors = ", ".join(f"{kind} {count}" for kind, count in sorted(found.errors.items())) or "none"
    return (f"{found.output_rate:,.1f} tokens/s, {found.request_rate:,.2f} requests/s over {found.seconds:.1f} s\n"
            f"first token p50 {found.ttft_ms.p50:.0f}  p99 {found.ttft_ms.p99:.0f} ms; "
            f"each further one p50 {found.tpot_ms.p50:.1f}  p99 {found.tpot_ms.p99:.1f} ms\n"
            f"requests {found.requests}, failed {found.failed} (errors: {errors}), cut {cut_streams(answers)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m enginewright_builder.generate", description=__doc__)
    parser.add_argument("--url", required=True, help="of a server with OpenAI's API, such as http://assistant:8000")
    parser.add_argument("--model", required=True)
    parser.add_argument("--jsonl", required=True, help="prompts, one JSON object a line, as builds read them")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--closed", type=int, metavar="N", help="keep N requests in flight")
    how.add_argument("--rate", type=float, metavar="R", help="send R requests a second, whatever the server does")
    parser.add_argument("--seconds", type=float, default=60.0, help="what is in flight then is still answered")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for a whole answer")
    parser.add_argument("--keep-connections", action="store_true",
                        help="use connections again: a Service sends all their requests to one replica")
    parser.add_argument("--exact", action="store_true",
                        help="each answer has as many tokens as its prompt allows, and one with fewer has failed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
