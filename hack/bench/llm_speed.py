"""A larger model of made-up weights: its configurations under load, the fastest beside vLLM's own settings.

Only speed is measured: what random weights answer says nothing of a configuration's accuracy.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from enginewright_builder.contract import load, to_plain
from enginewright_builder.errors import BuilderError
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.client import Ask, Client
from enginewright_builder.generate.figures import Objective
from enginewright_builder.generate.prompts import Lengths, made_up
from enginewright_builder.generate.server import VllmServer
from enginewright_builder.generate.sweep import Aim, Point, best, gains, measure, moves
from enginewright_builder.load import run_on_time

log = logging.getLogger("bench")
DEFAULT = "vLLM's own settings"
# SmolLM2's, whose tokeniser the model has.
VOCABULARY = 49152
LEVELS = (1, 16, 32, 64, 96, 128, 192, 256)
ASKS = 512
# A server that is not ready by then is given up, and its configuration fails.
READY_SECONDS = 240.0
TOKENISER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
QUANTISED = {"fp8": {"quantization": "fp8"}, "fp8, cache in fp8": {"quantization": "fp8", "kv_cache_dtype": "fp8"}}


class Dummy(VllmServer):
    """vLLM with made-up weights. What it compiles is kept from one start to the next."""

    cache = Path()

    def words(self) -> list[str]:
        return [*super().words(), "--load-format=dummy"]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "VLLM_CACHE_ROOT": str(self.cache / "vllm"),
                "TRITON_CACHE_DIR": str(self.cache / "triton")}


@dataclass
class Bench:
    """What all configurations share; ``longest`` is what one of them took at most, in seconds."""

    folder: Path
    asks: Sequence[Ask]
    aim: Aim
    load_seconds: float
    end: float
    longest: float = field(default=0.0)

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    @property
    def room(self) -> bool:
        """Whether there is time for one more."""
        return self.left > self.longest

    def measured(self, name: str, arguments: ServerArguments, loads: int = 1) -> dict[str, Any]:
        """``points`` of each load, or ``error``. Always within what is left."""
        begin = time.monotonic()
        found: dict[str, Any] = {"name": name, "words": arguments.words(), "settings": to_plain(arguments), "loads": []}
        try:
            run_on_time(self._loads(arguments, loads, found))
        except (BuilderError, TimeoutError) as error:
            found["error"] = f"{type(error).__name__}: {error}"[:3000]
        self.longest = max(self.longest, time.monotonic() - begin)
        log.info("%s: %s", name, found.get("error") or [_said(one) for one in found["loads"]])
        return found

    async def _loads(self, arguments: ServerArguments, loads: int, found: dict[str, Any]) -> None:
        async with asyncio.timeout(max(1.0, self.left)):
            server = Dummy(self.folder, arguments, ready_seconds=max(1.0, min(READY_SECONDS, self.left)))
            async with server, Client(server.http_url) as client:
                found["start_s"] = round(server.start_seconds, 1)
                for _ in range(loads):
                    points = await measure(client, self.asks, self.aim, seconds=self.load_seconds,
                                           metrics=server.metrics, levels=LEVELS)
                    found["loads"].append([to_plain(point) for point in points])


def sweep(given: argparse.Namespace, result: dict[str, Any]) -> Iterator[None]:
    """Adds ``speed``: the default, quantised ones, and settings around the best so far, as long as there is time."""
    found = result["speed"] = {"model": config(given), "parameters": parameters(config(given)),
                               "objective": {"ttft_ms": given.ttft_ms, "tpot_ms": given.tpot_ms,
                                             "percentile": Aim.percentile},
                               "input_tokens": given.input_tokens, "output_tokens": given.output_tokens,
                               "configurations": [], "pairs": []}
    bench = _bench(given, given.sweep_seconds)
    base = _base(given)
    found["configurations"].append(bench.measured(DEFAULT, base))
    yield
    if given.accelerator == "gpu":
        for name, change in QUANTISED.items():
            if bench.room:
                found["configurations"].append(bench.measured(name, _changed(base, change)))
                yield
    for move in moves(_best(found)[1].concurrency, longest=given.input_tokens, gpu=given.accelerator == "gpu"):
        name = str(leader(found)["name"])
        arguments = move.applied(_settings(leader(found)))
        if arguments is not None and bench.room:
            found["configurations"].append(bench.measured(
                move.name if name == DEFAULT else f"{name}, {move.name}", arguments))
            yield


def pairs(given: argparse.Namespace, result: dict[str, Any]) -> Iterator[None]:
    """Adds to ``speed``: the best and the default by turns, each order once, each on a server of its own."""
    found = result["speed"]
    best_one = leader(found)
    bench = _bench(given, given.pairs_seconds)
    sides = {"default": (DEFAULT, _base(given)), "best": (str(best_one["name"]), _settings(best_one))}
    if best_one["name"] == DEFAULT:
        return
    for order in (("best", "default"), ("default", "best")):
        pair: dict[str, Any] = {"order": list(order)}
        found["pairs"].append(pair)
        for side in order:
            if bench.room:
                pair[side] = bench.measured(*sides[side])
                yield
        if all(side in pair and pair[side]["loads"] for side in order):
            new, old = (best(_points(pair[side]["loads"][-1])) for side in ("best", "default"))
            pair |= {"best_value": new.value, "default_value": old.value, "both_meet": new.meets and old.meets,
                     "ratio": round(new.value / old.value, 4) if old.value else None}
            yield


def leader(found: dict[str, Any]) -> dict[str, Any]:
    """The configuration that serves best, the default unless another gains. Raises ``RuntimeError`` where the default
    has no figures."""
    return _best(found)[0]


def _best(found: dict[str, Any]) -> tuple[dict[str, Any], Point]:
    measured = [(one, best(_points(one["loads"][0]))) for one in found["configurations"] if one["loads"]]
    if not measured or measured[0][0]["name"] != DEFAULT:
        raise RuntimeError(f"{DEFAULT} could not be measured: {found['configurations'][0].get('error')}")
    return max((one for one in measured[1:] if gains(one[1], measured[0][1])), key=lambda one: one[1].rank,
               default=measured[0])


def config(given: argparse.Namespace) -> dict[str, Any]:
    """Of a Llama with the shape of 8B models, but for SmolLM2's vocabulary."""
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
            "hidden_size": given.hidden, "intermediate_size": given.hidden * 7 // 2, "num_hidden_layers": given.layers,
            "num_attention_heads": given.hidden // 128, "num_key_value_heads": max(1, given.hidden // 512),
            "head_dim": 128, "vocab_size": VOCABULARY, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
            "tie_word_embeddings": False}


def parameters(shape: dict[str, Any]) -> int:
    """Of such a config."""
    width, heads = shape["hidden_size"], shape["num_attention_heads"] + 2 * shape["num_key_value_heads"]
    layer = width * shape["head_dim"] * heads + width * width + 3 * width * shape["intermediate_size"] + 2 * width
    return int(shape["num_hidden_layers"] * layer + 2 * width * shape["vocab_size"] + width)


def _bench(given: argparse.Namespace, seconds: float) -> Bench:
    """Of ``seconds`` from now. Model and cache have one place in all parts of a run: what was compiled is found."""
    place = Path(tempfile.gettempdir())
    folder, Dummy.cache = place / "larger", place / "compiled"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(given)))
    for name in TOKENISER:
        shutil.copy(given.inputs / "smollm2" / name, folder)
    lengths = Lengths(input_tokens=given.input_tokens, output_tokens=given.output_tokens)
    aim = Aim(objective=Objective(ttft_ms=given.ttft_ms, tpot_ms=given.tpot_ms))
    return Bench(folder, list(itertools.islice(made_up(lengths, VOCABULARY), ASKS)), aim, given.load_seconds,
                 time.monotonic() + seconds)


def _base(given: argparse.Namespace) -> ServerArguments:
    """vLLM's own settings; on a CPU with what it cannot do without."""
    if given.accelerator == "gpu":
        return ServerArguments()
    return ServerArguments(dtype="float32", cache_gib=1, threads=1, enforce_eager=True, max_model_len=512)


def _changed(base: ServerArguments, change: dict[str, Any]) -> ServerArguments:
    return load(ServerArguments, json.dumps({**to_plain(base), **change}))


def _settings(one: dict[str, Any]) -> ServerArguments:
    return load(ServerArguments, json.dumps(one["settings"]))


def _points(points: Sequence[dict[str, Any]]) -> list[Point]:
    return [load(Point, json.dumps(one)) for one in points]


def _said(points: Sequence[dict[str, Any]]) -> str:
    top = best(_points(points))
    return f"{top.value:.2f} requests/s within the objective with {top.concurrency} in flight (meets {top.meets})"
