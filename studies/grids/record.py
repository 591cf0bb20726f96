"""Records a grid: all configurations loaded side by side in one real tritonserver, so that every repeat of every point
can be made in one random order over the whole grid, and a machine that slows down hits all alike."""

from __future__ import annotations

import asyncio
import datetime
import os
import random
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from numpy.typing import NDArray
from tritonclient.grpc import model_config_pb2 as schema

from bench.machine import host
from enginewright_builder.load import Request, encode, run_on_time
from enginewright_builder.sweep.bench import window
from enginewright_builder.triton.client import Server
from enginewright_builder.triton.model_config import to_text
from enginewright_builder.triton.repository import CONFIG_FILE, threads_per_instance
from enginewright_builder.triton.server import TritonServer
from grids.grid import Axes, Cell, Config, Grid

WARMUP_SECONDS = 0.12
# Models that load at the same time.
LOADING = 4


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``seconds_per_point`` of each measurement, ``repeats`` of each point; ``budget_seconds`` 0 is no limit.

    ``pause_seconds`` lie before each: under a real-time priority, Linux stops a process that fills a whole second.
    ``loaded`` is how many instances may be in memory at once: a grid of more is recorded in parts, one after the other.
    """

    seconds_per_point: float = 0.5
    repeats: int = 3
    budget_seconds: float = 0.0
    pause_seconds: float = 0.0
    loaded: int = 64
    gpus: tuple[int, ...] = ()
    seed: int = 0


def record(model: Path, axes: Axes, settings: Settings, *, title: str, command: str, notes: Sequence[str] = (),
           versions: Mapping[str, str] | None = None, say: Any = print) -> Grid:
    """``model`` is one model's folder of a Triton repository, warm-up data included: its samples are the requests."""
    with tempfile.TemporaryDirectory(prefix="enginewright-grid-") as scratch:
        return run_on_time(_record(model, Path(scratch), axes, settings, title, command, tuple(notes),
                                   dict(versions or {}), say))


async def _record(model: Path, scratch: Path, axes: Axes, settings: Settings, title: str, command: str,
                  notes: tuple[str, ...], versions: dict[str, str], say: Any) -> Grid:
    base = text_format.Parse((model / CONFIG_FILE).read_text(), schema.ModelConfig())
    inputs = request_of(model, base)
    for config in axes.configs():
        write_variant(model, base, config, scratch, settings.gpus)
    repeats: dict[Cell, list[Mapping[str, float]]] = {}
    ends = time.monotonic() + (settings.budget_seconds or float("inf"))
    async with TritonServer(scratch, gpus=settings.gpus) as server:
        parts = _parts(axes, settings.loaded)
        for index, part in enumerate(parts):
            # Each part gets its share of what is left, so that a short budget thins all parts alike.
            share = (ends - time.monotonic()) / (len(parts) - index)
            await _record_part(server, part, axes, inputs, settings, time.monotonic() + share, repeats, say)
        versions = {"tritonserver": server.version, **versions}
    wanted = settings.repeats * len(axes.cells())
    return Grid(model=title, hardware=hardware(settings.gpus), versions=versions, command=command,
                recorded=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), notes=notes,
                seconds_per_point=settings.seconds_per_point, axes=axes, repeats=repeats,
                missing=wanted - sum(map(len, repeats.values())))


async def _record_part(server: Server, configs: Sequence[Config], axes: Axes,
                       inputs: Mapping[str, NDArray[Any]], settings: Settings, ends: float,
                       repeats: dict[Cell, list[Mapping[str, float]]], say: Any) -> None:
    gate = asyncio.Semaphore(LOADING)

    async def load(config: Config) -> None:
        async with gate:
            await server.load(variant_name(config))

    began = time.monotonic()
    await asyncio.gather(*map(load, configs))
    say(f"{len(configs)} configurations loaded in {time.monotonic() - began:.0f} s")
    cells = [Cell(config=config, concurrency=concurrency) for config in configs for concurrency in axes.concurrencies]
    requests = {config: [encode(variant_name(config), inputs)] for config in configs}
    for config in configs:  # each instance allocates at its first batches
        await window(server, variant_name(config), requests[config], concurrency=axes.concurrencies[-1],
                     seconds=WARMUP_SECONDS, warmup_seconds=WARMUP_SECONDS)
    order = random.Random(settings.seed)  # noqa: S311 - not a secret
    for number in range(settings.repeats):
        for cell in order.sample(cells, len(cells)):
            if time.monotonic() + settings.seconds_per_point > ends:
                say(f"out of time in round {number + 1} of {settings.repeats}")
                break
            await asyncio.sleep(settings.pause_seconds)
            figures = await measure(server, cell, requests[cell.config], settings.seconds_per_point)
            repeats.setdefault(cell, []).append(figures)
        say(f"round {number + 1} of {settings.repeats} after {time.monotonic() - began:.0f} s")
    await asyncio.gather(*(server.unload(variant_name(config)) for config in configs))


async def measure(server: Server, cell: Cell, requests: Sequence[Request], seconds: float) -> dict[str, float]:
    seen = await window(server, variant_name(cell.config), requests, concurrency=cell.concurrency, seconds=seconds,
                        warmup_seconds=WARMUP_SECONDS)
    load, layers = seen.load, seen.layers
    if load.failed or not load.measured:
        raise RuntimeError(f"{cell}: {load.failed} of {load.requests} requests failed: {dict(load.errors)}\n"
                           f"{server.last_words()}")
    # By Little's law: a count of completions in a short window jumps by whole batches.
    return {"throughput": cell.concurrency / (load.mean_ms / 1e3), "throughput_low": load.throughput_low,
            "throughput_high": min(load.throughput_high, 1e12), "mean_ms": load.mean_ms, "p50_ms": load.p50_ms,
            "p90_ms": load.p90_ms, "p95_ms": load.p95_ms, "p99_ms": load.p99_ms, "mean_batch": seen.mean_batch,
            "queue_ms": layers.queue_ms, "compute_ms": layers.compute_ms, "input_output_ms": layers.input_output_ms,
            "transport_ms": layers.transport_ms}


def variant_name(config: Config) -> str:
    return f"b{config.max_batch_size}-d{config.max_queue_delay_us}-i{config.instance_count}"


def write_variant(model: Path, base: schema.ModelConfig, config: Config, root: Path, gpus: tuple[int, ...]) -> None:
    """The model once more, under another name and configuration. Files are linked, not copied."""
    folder = root / variant_name(config)
    shutil.copytree(model, folder, copy_function=_link)
    changed = schema.ModelConfig()
    changed.CopyFrom(base)
    changed.name, changed.max_batch_size = folder.name, config.max_batch_size
    changed.ClearField("dynamic_batching")
    changed.ClearField("model_warmup")
    if config.max_batch_size > 1:
        changed.dynamic_batching.max_queue_delay_microseconds = config.max_queue_delay_us
    for group in changed.instance_group:
        group.count = config.instance_count
    if "threads" in changed.parameters and not gpus:
        changed.parameters["threads"].string_value = str(threads_per_instance(config.instance_count))
    (folder / CONFIG_FILE).unlink()
    (folder / CONFIG_FILE).write_text(to_text(changed))


def request_of(model: Path, config: schema.ModelConfig) -> dict[str, NDArray[Any]]:
    """The warm-up sample as one request of batch 1. Raises ``ValueError`` when the repository has none."""
    sample = next((one for one in config.model_warmup if one.batch_size == 1), None)
    if sample is None:
        raise ValueError(f"{model}: config.pbtxt has no warm-up sample of batch 1; write the repository with warm-up")
    arrays = {}
    for name, entry in sample.inputs.items():
        kind = {"TYPE_FP32": "float32", "TYPE_FP16": "float16", "TYPE_INT64": "int64", "TYPE_INT32": "int32",
                "TYPE_UINT8": "uint8", "TYPE_BOOL": "bool"}[schema.DataType.Name(entry.data_type)]
        raw = (model / "warmup" / entry.input_data_file).read_bytes()
        arrays[name] = np.frombuffer(raw, dtype=kind).reshape(1, *entry.dims)
    return arrays


def hardware(gpus: tuple[int, ...]) -> dict[str, Any]:
    """``device`` is what engines run on."""
    here = host()
    return {**here, "device": gpu_name(), "gpus": len(gpus)} if gpus else {**here, "device": here["cpu"]}


def gpu_name() -> str:
    import torch

    return str(torch.cuda.get_device_name(0))


def _parts(axes: Axes, loaded: int) -> list[list[Config]]:
    """Configurations dealt out so that no part holds more than ``loaded`` instances (one configuration at least)."""
    parts: list[list[Config]] = [[]]
    for config in axes.configs():
        if parts[-1] and sum(one.instance_count for one in parts[-1]) + config.instance_count > loaded:
            parts.append([])
        parts[-1].append(config)
    return parts


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
    return target
