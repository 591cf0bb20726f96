"""Serves what replicas' /metrics would be, at every address of this network.

A program of its own, so that what it costs is not counted as anybody else's: each line on its standard input is an
address and how many requests wait there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from attack.replicas import ok, serving

# What a tritonserver tells of one model without a GPU, in about as many bytes.
COUNTERS: Final = tuple(f"nv_{name}" for name in (
    "inference_request_success", "inference_count", "inference_exec_count", "inference_request_duration_us",
    "inference_queue_duration_us", "inference_compute_input_duration_us", "inference_compute_infer_duration_us",
    "inference_compute_output_duration_us", "cpu_memory_total_bytes", "pinned_memory_pool_total_bytes"))
REASONS: Final = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)


def page(pending: int) -> bytes:
    lines = []
    for name in COUNTERS:
        lines += [f"# HELP {name} What a tritonserver says of {name.removeprefix('nv_').replace('_', ' ')}",
                  f"# TYPE {name} counter", f'{name}{{model="m",version="1"}} 0']
    lines += [f'nv_inference_request_failure{{model="m",reason="{one}",version="1"}} 0' for one in REASONS]
    lines += [f'nv_inference_request_summary_us{{model="m",version="1",quantile="{one}"}} 0' for one in QUANTILES]
    lines += ["# TYPE nv_inference_pending_request_count gauge",
              f'nv_inference_pending_request_count{{model="m",version="1"}} {pending}', ""]
    return "\n".join(lines).encode()


def answers(waiting: Mapping[str, int]) -> Callable[[str], bytes]:
    """``waiting`` maps addresses to how many requests wait there; at all others none does."""
    quiet = ok(page(0))

    def answer(address: str) -> bytes:
        return ok(page(waiting[address])) if waiting.get(address) else quiet

    return answer


async def main() -> None:
    waiting: dict[str, int] = {}
    async with serving(["0.0.0.0"], answers(waiting)):  # noqa: S104 - of a network of its own
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            address, depth = line.split()
            waiting[address] = int(depth)


@contextlib.asynccontextmanager
async def pages() -> AsyncIterator[Callable[[Mapping[str, int]], None]]:
    """Gives what says how many requests wait at some addresses."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scale_study.pages", env=dict(os.environ), stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    given = process.stdin

    def wait(depths: Mapping[str, int]) -> None:
        given.write("".join(f"{address} {depth}\n" for address, depth in depths.items()).encode())

    try:
        if (await process.stdout.readline()).strip() != b"ready":
            raise RuntimeError("the metrics pages of replicas are not served")
        yield wait
    finally:
        process.kill()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(main())
