"""Merges the product rows of ``python -m bench`` into one file, and renders it as a page:
``python -m bench.product_page OUT PART…``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench import cells
from bench.page import SAME, merge
from tables import head

# As ``bench.run`` names it, which needs PyTorch.
AS_SHIPPED = "as shipped"


def product(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """``{"hardware", "versions", "command", "models", "cells", "failed"}``. Raises ``ValueError`` where hardware or
    versions differ between parts."""
    merged = merge(parts)
    return {**{key: merged[key] for key in ("hardware", "versions", "command")}, "models": merged["product"],
            "cells": merged["cells"], "failed": merged["failed"]}


def summary(result: dict[str, Any]) -> dict[str, float]:
    """The goals' figures; ratios are geometric means over all models and batches."""
    rows = result["models"]
    regrets = [one for row in rows for one in row["regret"].values()]
    return {"cells": len(regrets), "within_3_percent": sum(one <= SAME for one in regrets) / len(regrets),
            "worst_regret": max(regrets), "over_eager_fp32": _mean(rows, "over_eager_fp32"),
            "over_compile_graphs": _mean(rows, "over_compile_graphs"),
            **{f"{key}_over_eager": cells.geometric_mean([one["eager_p50_ms"] / one["p50_ms"] for one in seen])
               for key in ("served", "knee") if (seen := [row[key] for row in rows if key in row])}}


def _mean(rows: Iterable[dict[str, Any]], key: str) -> float:
    return cells.geometric_mean([one for row in rows for one in row[key].values()])


def page(result: dict[str, Any], data: str = "product.json") -> str:
    """Markdown: the goals' figures, and a table of the models; ``data`` is the file beside it."""
    hardware, figures = result["hardware"], summary(result)
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return "\n".join([
        "# What a build ships on a GPU", "",
        f"`{result['command']}` on {hardware['gpu']} ({hardware['memory']}, driver {hardware['driver']}), "
        f"{hardware['cpu']}; {versions}. The data is [{data}]({data}).", "",
        "Each model went through one run of the real `enginewright-build` with its default precisions, given samples "
        "to be held against and to calibrate with. Then every candidate was built again without regard to time, and "
        "the published engine raced beside all of them and beside the baselines, inputs on the GPU. At last a real "
        "tritonserver served the published repository, and the same model as people serve it without Enginewright.",
        "", *head("figure", "value"),
        f"| cells where what ships is within 3 % of the best that is accurate, baselines too | "
        f"{figures['within_3_percent']:.0%} of {figures['cells']} (worst {figures['worst_regret']:.3f}×) |",
        f"| over eager FP32, geometric mean | {figures['over_eager_fp32']:.2f}× |",
        f"| over torch.compile FP16 with CUDA graphs, geometric mean | {figures['over_compile_graphs']:.3f}× |",
        *(f"| p50 served, beside eager FP32 in Triton, {load} | {figures[key]:.2f}× |" for key, load in
          (("served_over_eager", "one request in flight"), ("knee_over_eager", "at the knee")) if key in figures), "",
        *head("model", "budget, s", "build, s", "batch", "ships", "accurate rivals", "÷ best", "over eager",
              "over compiled"),
        *(line for row in result["models"] for line in _cells(row, result["cells"])), "",
        *_all_served([row for row in result["models"] if "served" in row]),
        *(f"- {row['model']}: not tried within the budget: {', '.join(row['untried'])}" for row in result["models"]
          if row["untried"])]) + "\n"


def _rivals(model: str, batch: str, measured: Iterable[dict[str, Any]]) -> int:
    """Engines and baselines that raced beside the published engine, and are accurate."""
    return sum(one["passes"] for cell in measured if (cell["model"], str(cell["batch"])) == (model, batch)
               for name, one in cell["candidates"].items() if name != AS_SHIPPED)


def _cells(row: dict[str, Any], measured: Sequence[dict[str, Any]]) -> list[str]:
    def times(key: str, batch: str) -> str:
        return f"{row[key][batch]:.2f}×" if batch in row[key] else ""

    return [f"| {row['model']} | {row['budget_s']} | {row['build_s']:.0f} | {batch} | {name} | "
            f"{_rivals(row['model'], batch, measured)} | {row['regret'][batch]:.3f}× | "
            f"{times('over_eager_fp32', batch)} | {times('over_compile_graphs', batch)} |"
            for batch, name in row["shipped"].items()]


def _all_served(rows: Sequence[dict[str, Any]]) -> list[str]:
    return ["Served: milliseconds that a gRPC client on loopback sees, requests of one sample each.", "",
            *head("model", "in flight", "p50", "p99", "eager p50", "compiled p50", "bare"),
            *(line for row in rows for line in _served(row)), ""] if rows else []


def _served(row: dict[str, Any]) -> list[str]:
    def line(label: str, one: dict[str, Any]) -> str:
        bare = f"{one['bare_ms']:.3f}" if "bare_ms" in one else ""
        return (f"| {row['model']} | {label} | {one['p50_ms']:.3f} | {one['p99_ms']:.3f} | {one['eager_p50_ms']:.3f} | "
                f"{one['compile_p50_ms']:.3f} | {bare} |")

    return [line("1", row["served"]), line(str(row["knee"]["concurrency"]), row["knee"])]


def main(output: str, *parts: str) -> None:
    result = product([json.loads(Path(part).read_text()) for part in parts])
    Path(output).write_text(json.dumps(result, indent=1) + "\n")
    Path(output).with_suffix(".md").write_text(page(result, Path(output).name))


if __name__ == "__main__":
    main(*sys.argv[1:])
