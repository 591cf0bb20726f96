"""Run the study of the gate of language models: ``make language-gate-study COUNT=200``.

Trials of both sides go on until as many count as are asked for, or the time is over. What is written says how many did.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import dataclasses
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.machine import hardware, processor
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.client import Client
from language_gate.server import Reloading, weights
from language_gate.study import BARS, MAX_TOKENS, POPULATION, Bench, Reference, Trial
from support.language_model import smollm2, vllm

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "docs" / "benchmarks" / "language-gate.json"
# Each side has as many trials at most for each that is to count.
MOST = 2
SIDES = ("broken", "sound")
# What runs must have in common to be counted together, and their device.
OF_STUDY = ("model", "bars", "tokens", "population", "versions")
_SHARED = ServerArguments(dtype="bfloat16", max_model_len=512, enforce_eager=True, prefix_caching=False)
SERVERS = {"cpu": dataclasses.replace(_SHARED, cache_gib=1, threads=1),
           "gpu": dataclasses.replace(_SHARED, memory_share=0.3)}


def main(words: Sequence[str] | None = None) -> int:
    """0 if no broken model was admitted."""
    parser = argparse.ArgumentParser(prog="language_gate", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="models of each side (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=120.0, help="end after so many (default %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--after", type=Path, metavar="FILE", help="go on where the trials of FILE ended, which an "
                                                                   "earlier run wrote, and count them too")
    parser.add_argument("--accelerator", default="cpu", choices=sorted(SERVERS),
                        help="on a GPU ENGINEWRIGHT_VLLM names the folder of a vLLM for it, and --model the model's")
    parser.add_argument("--model", type=Path, help="folder of SmolLM2 (default: hack/dev/smollm2.sh makes one)")
    options = parser.parse_args(words)
    # Stopped by a time limit, it stops its server, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.accelerator == "cpu":
        vllm()
    result = asyncio.run(_run(options))
    admitted, sound = result["broken"]["passed"], result["sound"]
    sys.stderr.write(f"{result['broken']['counted']} broken models: {admitted} admitted; {sound['counted']} sound "
                     f"ones: {sound['counted'] - sound['passed']} refused; {options.output}\n")
    return 0 if admitted == 0 else 1


async def _run(options: argparse.Namespace) -> dict[str, Any]:
    """What it found so far is in ``output`` after each trial of both sides."""
    seconds = 60 * options.minutes
    earlier: dict[str, Any] = json.loads(options.after.read_text()) if options.after else {}
    first = min((earlier[side]["tried"] for side in SIDES if earlier), default=0)
    count = options.count - min((earlier[side]["counted"] for side in SIDES if earlier), default=0)
    model, machine = options.model or smollm2(), hardware() if options.accelerator == "gpu" else processor()
    begin, result = time.monotonic(), dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="language-gate-") as folder:
        async with Reloading(model, SERVERS[options.accelerator]) as server, Client(server.http_url) as client:
            bench = Bench(server=server, client=client, model=model, weights=weights(model),
                          folder=Path(folder) / "model", reference=await Reference.of(client))
            trials: dict[str, list[Trial]] = {side: [] for side in SIDES}
            for index in range(first, first + MOST * count):
                for side, run in zip(SIDES, (bench.broken, bench.sound), strict=True):
                    if _counted(trials[side]) < count:
                        trials[side].append(await run(index))
                        sys.stderr.write(f"{time.monotonic() - begin:6.0f} s {trials[side][-1]}\n")
                result = added(earlier, _result(trials, machine, server.version, time.monotonic() - begin))
                _keep(options.output, result)
                if time.monotonic() - begin > seconds or all(_counted(one) >= count for one in trials.values()):
                    break
    return result


def _keep(output: Path, result: Mapping[str, Any]) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _result(trials: Mapping[str, Sequence[Trial]], machine: Mapping[str, Any], version: str, seconds: float
            ) -> dict[str, Any]:
    on = " ACCELERATOR=gpu" if "gpu" in machine else ""
    return {"command": f"make language-gate-study{on} MINUTES={seconds / 60:.0f}", "model": "SmolLM2-135M-Instruct",
            "bars": [{"tolerance": tolerance, "prompts": prompts} for tolerance, prompts in BARS],
            "tokens": MAX_TOKENS, "population": POPULATION,
            "hardware": machine, "versions": {"vllm": version},
            "seconds": round(seconds), **{side: tally(one) for side, one in trials.items()}}


def added(earlier: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """``result`` with the counts of ``earlier``. Raises :class:`ValueError` where the two are not of one study."""
    if not earlier:
        return dict(result)
    device = "gpu" if "gpu" in result["hardware"] else "cpu"
    for field, before, now in [*((field, earlier[field], result[field]) for field in OF_STUDY),
                               (device, earlier["hardware"].get(device), result["hardware"][device])]:
        if before != now:
            raise ValueError(f"{field}: {before} in the earlier run, {now} in this one")
    return {**result, "command": f'{earlier["command"]}; {result["command"]} ARGS="--after …"',
            "seconds": earlier["seconds"] + result["seconds"],
            **{side: _sum(earlier[side], result[side]) for side in SIDES}}


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, Mapping):
        return {**one, **{key: _sum(one[key], value) if key in one else value for key, value in other.items()}}
    return one + other


def _counted(trials: Sequence[Trial]) -> int:
    return sum(one.counts for one in trials)


def tally(trials: Sequence[Trial]) -> dict[str, Any]:
    """What trials say together; those that do not count are listed by kind."""
    counted = [one for one in trials if one.counts]
    kinds, passed = (collections.Counter(one.kind for one in counted if wanted(one))
                     for wanted in (lambda _: True, lambda one: one.passed))
    left_out = collections.Counter(one.kind for one in trials if not one.counts)
    return {"counted": len(counted), "passed": sum(passed.values()), "tried": len(trials),
            "kinds": {kind: {"counted": kinds[kind], "passed": passed[kind]} for kind in sorted(kinds)},
            "left_out": dict(sorted(left_out.items())),
            "passed_without_effect": sum(one.passed for one in trials if not one.counts),
            "tolerances": {f"{tolerance:g}": sum(one.tolerance == tolerance for one in counted)
                           for tolerance, _ in BARS}}


if __name__ == "__main__":
    sys.exit(main())
