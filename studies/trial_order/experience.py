"""The table that trials are ordered by, made from the benchmarks: ``python -m trial_order experience``.

What the benchmarks measured stands in their files; what they did not is assumed below, with the reason beside it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from enginewright_builder.engines.base import quickly

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks"
TABLE = ROOT / "builders" / "enginewright_builder" / "competition" / "experience.json"
LOOKS = "looks.json"
# The newest first, after the builds of trials.json: a candidate that a newer file has is not read from an older one.
FILES = ("product-four.json", "product-single.json", "h200.json", "h200-int8.json", "h200-fp8.json")
# Since when PyTorch's packages have today's layout.
PACKAGES = ("product-four.json", "product-single.json", "h200.json")
TRIALS = "trials.json"
ANCHOR, SOURCE = "tensorrt fp16", "eager-fp32"
# What stands in for the anchor where that was not tuned, or did not race.
ALSO = "tensorrt int8"
BATCHES = (1, 8, 32)
# What people run without Enginewright is no candidate; nor is the published engine beside its own copies.
_BASELINES = ("eager-fp32", "eager-fp16", "compile-fp16-graphs", "as shipped")  # COMPILED tells of packages

# Seconds by what was built, where builds of FILES and trials.json have none; of an engine for one batch at each of the
# table's batches. H200 cold builds, docs/benchmarks/README.md ("To write INT8 into BERT's graph takes 81 s, into ViT's
# 91, DeepLabV3's 63 and ConvNeXt's 50") and h200.json's "builds".
SECONDS: dict[str, dict[str, Any]] = {
    "graph int8": {"bert-base": 81, "vit-b16": 91, "deeplabv3-resnet50": 63, "convnext-tiny": 50},
    "graph fp16": {"bert-base": 12.7, "resnet50": 7.6},
    "tensorrt wide": {"bert-base": 40.1},
    "tensorrt one": {"efficientnet-b0": [82, None, None]},
    # ADR 0006: 80 s each; README: "95 to 150 of their 300 to 450 s" of BERT, DeepLabV3 and Swin, more than one package.
    "torch wide": {"vit-b16": 80, "bert-base": 80},
    "torch one": {"vit-b16": [18, None, None], "bert-base": [17, None, None]},
}
# A package for one batch, of which few were built: torch.compile with CUDA graphs knows the batch as well, and took 0.1
# to 0.8 % more than the three that raced beside it (h200.json). It does not have the package's layout of convolutions
# (engines/torch_layout.py), so where it is slower than the package for every batch, that tells nothing.
PACKAGE, COMPILED = "torch fp16", "compile-fp16-graphs"
# Of the graph that the anchor's trial writes as well.
GRAPH_FP16 = 10.0

ASSUMED: dict[str, dict[str, Any]] = {
    "tensorrt bf16": {"like": "tensorrt fp16", "log": [0.02, 0.02, 0.02], "sd": 0.03, "passes": 0.9,
                      "why": "the tensor cores' rate of FP16, and fewer fused kernels"},
    "tensorrt tf32": {"like": "tensorrt fp16", "log": [0.35, 0.6, 0.8], "sd": 0.15, "passes": 0.97,
                      "why": "half the rate of FP16 and twice the bytes"},
    "tensorrt fp32": {"like": "tensorrt fp16", "log": [0.6, 1.1, 1.6], "sd": 0.2, "passes": 0.97,
                      "why": "no tensor cores; PyTorch's eager FP32 takes 1.0 to 6.1 times its FP16"},
    "torch bf16": {"like": "torch fp16", "log": [0.0, 0.0, 0.0], "sd": 0.02, "passes": 0.9,
                   "why": "the tensor cores' rate of FP16, and the same kernels"},
    "torch tf32": {"like": "torch fp16", "log": [0.35, 0.6, 0.8], "sd": 0.15, "passes": 0.97,
                   "why": "half the rate of FP16 and twice the bytes"},
    "torch fp32": {"like": "torch fp16", "log": [0.6, 1.1, 1.6], "sd": 0.2, "passes": 0.97, "why": "no tensor cores"},
    "onnxruntime tf32": {"like": "onnxruntime fp16", "log": [0.0, 0.2, 0.4], "sd": 0.2, "passes": 0.97,
                         "why": "launches bound its small batches, whatever the precision"},
    "onnxruntime fp32": {"like": "onnxruntime fp16", "log": [0.0, 0.4, 0.9], "sd": 0.2, "passes": 0.97,
                         "why": "launches bound its small batches, whatever the precision"},
}
"""What the benchmarks do not hold. ``log`` is of the time over that of ``like``, at the table's batches."""

ASSUMED_SECONDS = {
    "graph fp8": [60, "as INT8's, whose histograms it does not need"],
    "graph bf16": [10, "as FP16's"],
    "onnxruntime wide": [10, "a session, and an export in FP16"],
    "cpu onnxruntime": [5, "a session, or a pass over the weights"],
    "cpu onnxruntime int8-static": [20, "calibration"],
    "cpu torch": [60, "ADR 0006: FP32 on two cores"],
}

CPU: dict[str, dict[str, Any]] = {
    "onnxruntime int8-dynamic": {"like": "onnxruntime fp32", "log": [-0.5, -0.5, -0.5], "sd": 0.5, "passes": 0.6,
                                 "why": "MiniLM took 29.8 ms for 66.7; convolutions gain nothing"},
    "onnxruntime int8-static": {"like": "onnxruntime fp32", "log": [-0.5, -0.5, -0.5], "sd": 0.4, "passes": 0.6,
                                "why": "products and convolutions alike, with scales that are found ahead"},
    "torch fp32": {"like": "onnxruntime fp32", "log": [0.05, 0.05, 0.05], "sd": 0.2, "passes": 0.97,
                   "why": "the same products, in other libraries"},
}


def seconds(model: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    """What one model's builds took, as :data:`SECONDS` has it: of its trials in FP16, which are cold, and write one
    graph, and of engines for single batches in FP16 or else in INT8."""
    known = {what: by_model[model] for what, by_model in SECONDS.items() if model in by_model}
    took = {one["name"]: one["build_s"] for one in trials if one["build_s"] is not None}
    if ANCHOR in took:
        known["tensorrt wide"] = round(took[ANCHOR] - known.get("graph fp16", GRAPH_FP16), 1)
    gates = [one["gate_s"] for one in trials if one["name"] == ANCHOR and one["gate_s"]]
    if gates:
        known["gate"] = gates[0]
    ones = [took.get(f"{ANCHOR} @{batch}") or took.get(f"{ALSO} @{batch}") for batch in BATCHES]
    return known | ({"tensorrt one": ones} if any(ones) else {})


def built(model: str, files: dict[str, dict[str, Any]], trials: dict[str, Any]) -> list[dict[str, Any]]:
    """The trials of the newest build of ``model`` that says what each took."""
    newest = [one["trials"] for name in FILES for one in files[name].get("models", ())
              if one["model"] == model and one.get("trials")]
    found: list[dict[str, Any]] = newest[0] if newest else trials["models"].get(model, [])
    return found


def table(looks: dict[str, Any], files: dict[str, dict[str, Any]], trials: dict[str, Any]) -> dict[str, Any]:
    """``{"batches", "anchor", "models": {name: {"look", "log", "passes", "seconds"}}, "assumed", …}``: ``log`` is of a
    candidate's time over the anchor's of the same file, at each batch; None where it was not measured."""
    models: dict[str, Any] = {name: {"look": look, "log": {}, "passes": {},
                                     "seconds": seconds(name, built(name, files, trials))}
                              for name, look in looks.items()}
    for name, model in trials["models"].items():
        for cell in _cells(model):
            _read(cell, models[name], packages=True)
    for name in FILES:
        for cell in (one for one in files[name]["cells"] if ANCHOR in one["candidates"]):
            _read(cell, models[cell["model"]], packages=name in PACKAGES)
    for name in FILES:
        for cell in (one for one in files[name]["cells"] if ANCHOR not in one["candidates"]):
            _read(_anchored(cell, models[cell["model"]]), models[cell["model"]], packages=name in PACKAGES)
    for name in PACKAGES:
        for cell in files[name]["cells"]:
            _compiled(cell, models[cell["model"]])
    return {"made_from": [*FILES, TRIALS, LOOKS], "batches": list(BATCHES), "anchor": ANCHOR, "source": SOURCE,
            "models": models, "assumed": {"gpu": ASSUMED, "cpu": CPU}, "assumed_seconds": ASSUMED_SECONDS}


def _cells(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As a benchmark's, of what raced in a build."""
    found = []
    for batch in BATCHES:
        raced = {one["name"]: {"ms": one["ms"][str(batch)], "passes": one["verdict"] != "AccuracyRefused"}
                 for one in trials if str(batch) in one["ms"]}
        if ANCHOR in raced:
            found.append({"batch": batch, "candidates": raced})
    return found


def _anchored(cell: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    """With the anchor's time, as :data:`ALSO` tells it where it raced in its place; else without candidates."""
    at = BATCHES.index(cell["batch"])
    known = model["log"].get(ALSO, [None] * len(BATCHES))[at]
    raced: dict[str, Any] = cell["candidates"]
    if ALSO not in raced or known is None:
        return {**cell, "candidates": {ANCHOR: {"ms": 1.0, "passes": True}}}
    return {**cell, "candidates": {**raced, ANCHOR: {"ms": raced[ALSO]["ms"] / math.exp(known), "passes": True}}}


def _read(cell: dict[str, Any], model: dict[str, Any], *, packages: bool) -> None:
    anchor, place = cell["candidates"][ANCHOR]["ms"], BATCHES.index(cell["batch"])
    for name, one in cell["candidates"].items():
        known = model["log"].get(name)
        if name == ANCHOR or (name in _BASELINES and name != SOURCE) or (known and known[place] is not None):
            continue
        if (not packages and not name.startswith("tensorrt ")) or name.endswith(quickly("")):
            continue
        model["log"].setdefault(name, [None] * len(BATCHES))[place] = round(math.log(one["ms"] / anchor), 4)
        if name != SOURCE:
            model["passes"][name] = bool(one["passes"])
    model["passes"].setdefault(ANCHOR, bool(cell["candidates"][ANCHOR]["passes"]))


def _compiled(cell: dict[str, Any], model: dict[str, Any]) -> None:
    """A package for one batch, by the baseline that raced beside the one for every batch."""
    raced, place = cell["candidates"], BATCHES.index(cell["batch"])
    name, whole = f"{PACKAGE} @{cell['batch']}", model["log"].get(PACKAGE, [None] * len(BATCHES))[place]
    if not {PACKAGE, COMPILED} <= {*raced} or whole is None or name in model["log"]:
        return
    faster = min(0.0, math.log(raced[COMPILED]["ms"] / raced[PACKAGE]["ms"]))
    model["log"][name] = [None] * len(BATCHES)
    model["log"][name][place] = round(whole + faster, 4)


def made() -> str:
    """The table's text, from the files as they are."""
    looks = json.loads((BENCHMARKS / LOOKS).read_text(encoding="utf-8"))
    files = {name: json.loads((BENCHMARKS / name).read_text(encoding="utf-8")) for name in FILES}
    trials = json.loads((BENCHMARKS / TRIALS).read_text(encoding="utf-8"))
    return json.dumps(table(looks, files, trials), indent=1) + "\n"
