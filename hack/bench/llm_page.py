"""Renders what ``python -m bench.llm`` measured as a page: ``python -m bench.llm_page FILE.json`` writes FILE.md."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from tables import head

TRIALS = ("configuration", "verdict", "differs from the reference", "at most, beyond the floor", "first token, ms",
          "each further, ms", "tokens/s", "in flight", "ready after, s")
SPEEDS = ("configuration", "requests/s within the objective", "in flight", "meets it", "first token p99, ms",
          "each further p99, ms", "tokens/s", "ready after, s")


COPIES = ("The copies are in the form of compressed-tensors, rounded to the nearest value without calibration "
          "(`hack/bench/llm_quantised.py`): INT8 and FP8 with a scale for each channel, and activations likewise; INT4 "
          "weights with a scale for each 64.")


def page(result: dict[str, Any], data: str = "language-models.json") -> str:
    """Markdown; ``data`` is the file beside it."""
    return "\n".join(["# Language models on a GPU", "", _where(result, data), "",
                      *(_build("A build of SmolLM2-135M", result["build"]) if "build" in result else []),
                      *(_build("A build of SmolLM2-135M beside quantised copies of it", result["checkpoints"], COPIES)
                        if "checkpoints" in result else []),
                      *(_speed(result["speed"]) if "speed" in result else []),
                      *_failed(result.get("failed", []))]).rstrip() + "\n"


def _where(result: dict[str, Any], data: str) -> str:
    hardware = result["hardware"]
    gpu = f"{hardware['gpu']} ({hardware['memory']}, driver {hardware['driver']}), " if "gpu" in hardware else ""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    commands = "; ".join(f"`{one}`" for one in result["command"])
    return f"{commands} on {gpu}{hardware['cpu']}, {hardware['cores']} cores; {versions}. The data is [{data}]({data})."


def _build(title: str, built: dict[str, Any], *about: str) -> list[str]:
    refused = [f"- With a tolerance of {one['tolerance']:g} the build was refused: {one['why']}"
               for one in built["refused"]]
    about_it = [f"## {title}", "", *(line for text in about for line in (text, "")),
                f"`{built['command']}`, {built['seconds']:.0f} s of a budget of {built['budget_s']} s.", "", *refused]
    if "shipped" not in built:
        return [*about_it, ""]
    prompts, floor = built["prompts"], built["floor"]
    return [*about_it, *([""] if refused else []),
            f"It ships **{built['shipped']}**, at {built['gain']:.2f} times the tokens a second of the unquantised "
            "model by vLLM's own settings: "
            f"`{' '.join(built['words'])}`.", "",
            f"The gate compared {floor['places']} next tokens of {prompts['count']} prompts "
            f"({prompts['mean_tokens']:g} tokens in the mean). The noise floor: {floor['disagreement']:.2%} of the "
            f"unquantised model's own next tokens are others at another number of parallel requests "
            f"({floor['divergence']:.5f} bits). A candidate may lose {built['tolerance']:.0%} beyond it. Times are "
            "medians at the load that serves most.", "",
            *head(*TRIALS), *(_trial(one) for one in built["trials"]), "",
            *(f"- {one['name']}: {one['reason']}" for one in built["trials"]
              if one["verdict"] not in ("Shipped", "Slower", "Passed")),
            *(f"- {note}" for note in built["notes"]), ""]


def _trial(one: dict[str, Any]) -> str:
    loss = one["loss"]
    gate = f"{loss['value']:.2%} | {loss['high']:.2%}" if loss else " | "
    return f"| {one['name']} | {one['verdict']} | {gate} | {_served(one['points'])} | {_seconds(one['start_s'])} |"


def _served(points: Sequence[dict[str, Any]]) -> str:
    if not points:
        return " | | | "
    top = _best(points)
    found = top["figures"]
    return (f"{found['ttft_ms']['p50']:.1f} | {found['tpot_ms']['p50']:.2f} | {found['output_rate']:.0f} | "
            f"{top['concurrency']}")


def _speed(speed: dict[str, Any]) -> list[str]:
    asked, shape = speed["objective"], speed["model"]
    return ["## A larger model beside vLLM's own settings", "",
            f"A Llama of {speed['parameters'] / 1e9:.1f} billion made-up weights ({shape['num_hidden_layers']} layers "
            f"of {shape['hidden_size']}), so that speed alone is measured: whether a configuration would pass the gate "
            f"is unknown. Requests of {speed['input_tokens']} tokens that no prefix cache knows and "
            f"{speed['output_tokens']} tokens of answer, in a closed loop. What counts is the requests a second that "
            f"have their first token within {asked['ttft_ms']:g} ms and each further one within {asked['tpot_ms']:g} "
            f"ms, at the load where most do, and {asked['percentile']:g} % of all.", "",
            *head(*SPEEDS),
            *(_configuration(one["name"], points, one) for one in speed["configurations"] for points in one["loads"]),
            "", *_broken(speed["configurations"]), *_pairs(speed["pairs"])]


def _broken(configurations: Iterable[dict[str, Any]]) -> list[str]:
    lines = [f"- {one['name']}: failed: {one['error'].splitlines()[0]}" for one in configurations if "error" in one]
    return [*lines, ""] if lines else []


def _configuration(name: str, points: Sequence[dict[str, Any]], one: dict[str, Any]) -> str:
    top = _best(points)
    found = top["figures"]
    return (f"| {name} | {top['value']:.2f} | {top['concurrency']} | {'yes' if top['meets'] else 'no'} | "
            f"{found['ttft_ms']['p99']:.0f} | {found['tpot_ms']['p99']:.2f} | {found['output_rate']:.0f} | "
            f"{_seconds(one.get('start_s', 0))} |")


def _pairs(pairs: Iterable[dict[str, Any]]) -> list[str]:
    whole = [one for one in pairs if one.get("ratio")]
    if not whole:
        return []
    return ["The best and the default again, each on a server of its own, in both orders:", "",
            *head("order", "best", "vLLM's own settings", "ratio"),
            *(f"| {', then '.join(one['order'])} | {one['best_value']:.2f} | {one['default_value']:.2f} | "
              f"{one['ratio']:.2f}× |" for one in whole), "",
            f"The geometric mean of the ratios is {geometric_mean(one['ratio'] for one in whole):.2f}×.", ""]


def _failed(failed: Sequence[dict[str, str]]) -> list[str]:
    lines = [f"- {one['part']}: {one['error'].splitlines()[0]}" for one in failed]
    return ["## What failed", "", *lines] if lines else []


def _best(points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """As :func:`enginewright_builder.generate.sweep.best`."""
    return max(points, key=lambda one: (one["meets"], one["value"], -one["concurrency"]))


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value else ""


def main(file: str) -> None:
    path = Path(file)
    path.with_suffix(".md").write_text(page(json.loads(path.read_text()), path.name))


if __name__ == "__main__":
    main(*sys.argv[1:])
