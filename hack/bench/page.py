"""Merges result files of ``python -m bench`` into one, and renders it as a page: ``python -m bench.page OUT PART…``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import cells
from tables import head

LISTS = ("product", "cells", "builds", "serving", "models", "failed")
SAME = 1.03


def merge(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Parts of one benchmark on equal hardware. Raises ``ValueError`` where hardware or versions differ."""
    first = parts[0]
    for other in parts[1:]:
        for key in ("hardware", "versions"):
            if other[key] != first[key]:
                raise ValueError(f"parts differ in {key}: {first[key]} and {other[key]}")
    return {"hardware": first["hardware"], "versions": first["versions"],
            "command": "; ".join(part["command"] for part in parts),
            **{name: [row for part in parts for row in part.get(name, [])] for name in LISTS}}


def summary(result: dict[str, Any]) -> dict[str, float]:
    """The goals' figures: ratios are geometric means over the cells in which both were measured."""
    rows = result["cells"]
    regrets = [cells.regret(row) for row in rows]
    return {
        "cells": len(rows),
        "within_3_percent": sum(one <= SAME for one in regrets) / len(rows),
        "worst_regret": max(regrets),
        "over_eager_fp32": cells.geometric_mean(_ratios(rows, "eager-fp32")),
        "over_compile_fp16_graphs": cells.geometric_mean(_ratios(rows, "compile-fp16-graphs")),
        "shipped_pass_accuracy": sum(row["candidates"][row["shipped"]]["passes"] for row in rows) / len(rows),
        "rebuild_cold_over_warm": min((one["cold_s"] / one["warm_s"] for one in result["builds"]), default=0.0),
    }


def _ratios(rows: Sequence[dict[str, Any]], name: str) -> list[float]:
    return [row["candidates"][name]["ms"] / row["candidates"][row["shipped"]]["ms"] for row in rows
            if name in row["candidates"]]


def page(result: dict[str, Any]) -> str:
    """Markdown: the goals' figures, and a table a model."""
    hardware, figures = result["hardware"], summary(result)
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [
        f"# Benchmark on one {hardware['gpu']}", "",
        f"`{result['command']}` on {hardware['gpu']} ({hardware['memory']}, driver {hardware['driver']}), "
        f"{hardware['cpu']}; {versions}. The data is [h200.json](h200.json).", "",
        "Milliseconds a batch with inputs on the GPU, median of interleaved rounds with its 95 % interval; all "
        "candidates of a cell were measured in one run, in random order within each round. **Bold**: what Enginewright "
        "ships. ~~Struck~~: refused by the accuracy gate. Italic rows are what people run without it.", "",
        *head("figure", "value"),
        f"| cells where what ships is within 3 % of the best that passes | {figures['within_3_percent']:.0%} of "
        f"{figures['cells']} (worst {figures['worst_regret']:.3f}×) |",
        f"| over eager FP32, geometric mean | {figures['over_eager_fp32']:.2f}× |",
        f"| over torch.compile FP16 with CUDA graphs, geometric mean | {figures['over_compile_fp16_graphs']:.3f}× |",
        f"| shipped engines within the tolerance | {figures['shipped_pass_accuracy']:.0%} |",
        f"| rebuild with timing cache, least gain | {figures['rebuild_cold_over_warm']:.1f}× |", "",
    ]
    for model in result["models"]:
        lines += _model(model, [row for row in result["cells"] if row["model"] == model["model"]])
    return "\n".join([*lines, *_builds(result["builds"]), *_serving(result["serving"])]) + "\n"


def _model(model: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[str]:
    names = sorted({name for row in rows for name in row["candidates"]},
                   key=lambda name: (_first(rows, name).get("ships", False), name))
    lines = [f"## {model['model']} ({model['weights']} weights)", "",
             *head("candidate", "accuracy", *(f"batch {row['batch']}" for row in rows))]
    for name in names:
        one = _first(rows, name)
        label = name if one.get("ships") else f"*{name}*"
        times = " | ".join(_time(row, name) for row in rows)
        lines.append(f"| {label} | {one.get('accuracy', 0):.4f} | {times} |")
    lines += ["", *(f"- {one['candidate']}: {one['verdict']}: {one['reason']}" for one in model["refused"]), ""]
    return lines


def _first(rows: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    return next((row["candidates"][name] for row in rows if name in row["candidates"]), {})


def _time(row: dict[str, Any], name: str) -> str:
    one = row["candidates"].get(name)
    if one is None:
        return ""
    text = f"{one['ms']:.3f} ({one['ms_low']:.3f}–{one['ms_high']:.3f})"
    if not one["passes"]:
        return f"~~{text}~~"
    return f"**{text}**" if name == row["shipped"] else text


def _builds(rows: Sequence[dict[str, Any]]) -> list[str]:
    body = [f"| {row['model']} | {row['candidate']} | {row['graph_s']:.1f} | {row['builder_s']:.1f} | "
            f"{row['cold_s']:.1f} | {row['warm_s']:.2f} | {row['cold_s'] / row['warm_s']:.1f}× | "
            f"{row['alone_s']:.2f} | {(row['builder_s'] + row['cold_s']) / row['alone_s']:.1f}× |" for row in rows]
    return ["## Rebuilds with the timing cache", "",
            "`graph` is the export in this precision, which all builds need; the builds begin with that graph. "
            "`builder` is what TensorRT takes to load its kernels, once for all engines of a ladder: *cold* and *with "
            "cache* have it at hand, *alone* is a build with the cache that has to load them, beside a cold one that "
            "has to.", "",
            *head("model", "engine", "graph, s", "builder, s", "cold, s", "with cache, s", "gain", "alone, s", "gain"),
            *body,
            ""] if body else []


def _serving(rows: Sequence[dict[str, Any]]) -> list[str]:
    body = [f"| {row['model']} | {row['batch']} | {row['candidate']} | {row['device_ms']:.3f} | {row['bare_ms']:.3f} | "
            f"{row['triton_ms']:.3f} | {row['triton_ms'] / row['bare_ms']:.2f}× | "
            + ", ".join(f"{name.removesuffix('_ms')} {value:.3f}" for name, value in row["layers"].items()) + " |"
            for row in rows]
    return ["## Triton beside the bare engine", "",
            "p50 in milliseconds, one request in flight. `bare` takes inputs from host memory and brings answers back, "
            "as Triton must; `Triton` is gRPC on loopback to the Python backend of a real tritonserver.", "",
            *head("model", "batch", "engine", "on device", "bare", "Triton", "Triton ÷ bare", "where the time goes"),
            *body, ""] if body else []


def main(output: str, *parts: str) -> None:
    result = merge([json.loads(Path(part).read_text()) for part in parts])
    Path(output).write_text(json.dumps(result, indent=1) + "\n")
    Path(output).with_suffix(".md").write_text(page(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
