"""``python -m enginewright_builder.load``: drive load by hand or from a pod, and print what happened."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc.aio as triton
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from enginewright_builder.contract import requests_needed
from enginewright_builder.load import (
    Channels,
    LoadResult,
    Request,
    closed_loop,
    constant_arrivals,
    encode,
    open_loop,
    poisson_arrivals,
    run_on_time,
)
from enginewright_builder.load.requests import split, unpadded
from enginewright_builder.load.result import TAIL
from enginewright_builder.load.stopping import Stop
from enginewright_builder.tensors import Array, Steps, count, whole_call
from enginewright_builder.wire import to_wire

EXIT_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 when the run ended as asked (failed requests are in the figures), 2 for bad input or no server."""
    options = _parser().parse_args(arguments)
    try:
        text = Path(options.jsonl).read_text() if options.jsonl else ""
        lines = [line for line in text.splitlines() if line.strip()]
        result, reconnects = run_on_time(_run(options, lines))
    except (OSError, ValueError, KeyError, InferenceServerException) as error:
        print(f"load: {error}", file=sys.stderr)
        return EXIT_USAGE
    if options.json:
        plain = dataclasses.asdict(result)
        del plain["latencies_ms"]
        print(json.dumps({**plain, "reconnects": reconnects}))
    else:
        print(_text(result))
    return 0


async def _run(options: argparse.Namespace, lines: Sequence[str]) -> tuple[LoadResult, int]:
    requests = await _requests(options, lines)
    stop = Stop(options.min_requests if options.rate else 0)
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop.ask)
    common: dict[str, Any] = {"seconds": options.seconds, "warmup_seconds": options.warmup_seconds,
                              "timeout": options.timeout, "retries": options.retries, "stop": stop.event}
    async with Channels(options.url, count=options.channels, reconnect_seconds=options.reconnect_seconds) as channels:
        if options.rate:
            arrivals = poisson_arrivals(options.rate, options.seed) if options.arrivals == "poisson" else \
                constant_arrivals(options.rate)
            result = await open_loop(channels, requests, stop.counted(arrivals), **common)
        else:
            result = await closed_loop(channels, requests, concurrency=options.closed,
                                       max_requests=options.max_requests, **common)
        return result, channels.reconnects


async def _requests(options: argparse.Namespace, lines: Sequence[str]) -> list[Request]:
    if options.sequences and not options.inputs:
        raise ValueError("--sequences takes the sequences from --inputs FILE.npz, whose arrays are [samples, steps, …]")
    if options.inputs:
        with np.load(options.inputs, allow_pickle=False) as archive:
            data = {name: archive[name] for name in archive.files}
        data = await _as_sent(options, data)
        if options.sequences:
            return [encode(options.model, Steps(whole_call(data, index))) for index in range(count(data))]
        parts = split(data, options.batch)
        return [encode(options.model, unpadded(part, options.mask) if options.mask else part) for part in parts]
    described, batched = await _described(options)
    if options.jsonl:
        return [from_json(options.model, described, json.loads(line), batched) for line in lines]
    shapes = dict(_shape(text) for text in options.shape)
    return [encode(options.model, _made_up(described, shapes, options.batch, batched))]


async def _as_sent(options: argparse.Namespace, data: dict[str, Array]) -> dict[str, Array]:
    """The file's arrays in the shapes that clients send. This asks the server only where the answer matters, as the
    server may be a proxy that knows requests alone."""
    ahead = 2 if options.sequences else 0  # samples and steps, in front of what one request has
    if all(array.ndim != ahead + 1 for array in data.values()):
        return data
    _, batched = await _described(options)
    return to_wire(data, batched=batched, ahead=ahead)


async def _described(options: argparse.Namespace) -> tuple[Sequence[Mapping[str, Any]], bool]:
    """Inputs, as the server's metadata have them, and whether it takes batches."""
    async with triton.InferenceServerClient(options.url) as client:
        described = await client.get_model_metadata(options.model, as_json=True)
        config = (await client.get_model_config(options.model, as_json=True))["config"]
    return described["inputs"], int(config.get("max_batch_size", 0)) > 0


def from_json(model: str, described: Sequence[Mapping[str, Any]], line: Mapping[str, Any], batched: bool) -> Request:
    """One sample without its batch dimension: ``{"input_ids": [101, 2023, 102], …}``, or ``{"text": "…"}``."""
    arrays = {}
    for entry in described:
        array = np.asarray(line[entry["name"]], dtype=triton_to_np_dtype(entry["datatype"]))
        if not array.ndim and len(entry["shape"]) > batched:  # one text, where a row of them is taken
            array = array[None]
        arrays[entry["name"]] = array[None] if batched else array
    return encode(model, arrays)


def _made_up(described: Sequence[Mapping[str, Any]], shapes: Mapping[str, tuple[int, ...]], batch: int,
             batched: bool) -> dict[str, NDArray[Any]]:
    """Ones: valid as token ids and as masks. Free dimensions come from ``--shape``."""
    names = [entry["name"] for entry in described]
    if unknown := next((name for name in shapes if name not in names), ""):
        raise ValueError(f"--shape {unknown}: the model has no such input; write one of {', '.join(names)}")
    arrays = {}
    for entry in described:
        declared = [int(size) for size in entry["shape"]][1 if batched else 0:]
        shape = shapes.get(entry["name"], tuple(declared))
        if any(size < 0 for size in shape):
            raise ValueError(f"input {entry['name']!r} has free dimensions {declared}: "
                             f"give --shape {entry['name']}:N[,N]")
        dtype = triton_to_np_dtype(entry["datatype"])
        arrays[entry["name"]] = np.ones((batch, *shape) if batched else shape,
                                        dtype=dtype if dtype is not np.object_ else "S1")
    return arrays


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, separator, sizes = text.rpartition(":")
    if not separator:
        raise ValueError(f"--shape {text!r}: write NAME:SIZE[,SIZE…]")
    return name, tuple(int(size) for size in sizes.split(","))


def _text(result: LoadResult) -> str:
    errors = ", ".join(f"{kind} {count}" + (f", {result.messages[kind]!r} at first" if kind in result.messages else "")
                       for kind, count in sorted(result.errors.items())) or "none"
    rejected = "".join(f", rejected {count} ({kind})" for kind, count in sorted(result.rejected.items()))
    return (f"{result.throughput:,.1f} inferences/s over {result.seconds:.1f} s ({result.mode} loop)\n"
            f"latency  mean {result.mean_ms:.2f}  p50 {result.p50_ms:.2f}  p90 {result.p90_ms:.2f}  "
            f"p95 {result.p95_ms:.2f}  p99 {result.p99_ms:.2f}  {_tail(result)}\n"
            f"requests {result.requests}, failed {result.failed} (errors: {errors}), retried {result.retried}"
            f"{rejected}")


def _tail(result: LoadResult) -> str:
    if result.p999_ms is None:
        return f"ms (p99.9 takes {requests_needed(TAIL):,} requests, and {result.measured:,} were measured)"
    return f"p99.9 {result.p999_ms:.2f} ms"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m enginewright_builder.load", description=__doc__)
    parser.add_argument("--url", required=True, help="host:port of Triton's gRPC")
    parser.add_argument("--model", required=True)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--closed", type=_positive, default=8, metavar="N", help="keep N requests in flight (default 8)")
    mode.add_argument("--rate", type=_positive_number, default=0.0, metavar="R",
                      help="send R requests a second, whatever happens")
    parser.add_argument("--arrivals", choices=("poisson", "constant"), default="poisson", help="with --rate")
    parser.add_argument("--seed", type=int, default=0, help="seed of Poisson arrivals")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warmup-seconds", type=float, default=0.0, help="warm-up before the window; counted, not "
                                                                          "measured")
    parser.add_argument("--max-requests", type=int, default=0, help="end a closed loop after so many (0: no limit)")
    parser.add_argument("--min-requests", type=int, default=0,
                        help="with --rate: asked to stop (SIGTERM), go on until so many were sent; asked twice, stop")
    parser.add_argument("--batch", type=_positive, default=1, help="rows of each request")
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--inputs", metavar="FILE.npz", help="arrays by input name, samples in the leading dimension")
    data.add_argument("--jsonl", metavar="FILE",
                      help="one sample a line: {\"input\": [values]}, or {\"input\": \"text\"}")
    parser.add_argument("--sequences", action="store_true",
                        help="with --inputs and --closed: samples are sequences of requests, the steps behind the "
                             "samples")
    parser.add_argument("--mask", default="", metavar="NAME",
                        help="with --inputs: send rows without the padding that this input marks with 0")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME:N[,N]", help="shape of made-up inputs")
    parser.add_argument("--channels", type=_positive, default=4, help="number of connections")
    parser.add_argument("--reconnect-seconds", type=float, default=0.0,
                        help="renew every connection this often, so that new replicas behind a Service get traffic")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for one request")
    parser.add_argument("--retries", type=int, default=0,
                        help="further tries when the server is unreachable (default 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _positive_number(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{value} is not above 0")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
