"""What the models of the GPU benchmark are made of: ``python -m trial_order looks MODELS``, for which PyTorch, timm and
torchvision must be here. A CPU is enough: counts are the same everywhere."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path

from bench.cells import BATCHES
from bench.zoo import ZOO
from enginewright_builder.export import export_model
from enginewright_builder.measure.work import look
from enginewright_builder.models.synthetic import example_inputs


def write_looks(inputs: Path, target: Path) -> None:
    """``{model: {kind: share, …, "operators": count}}`` at the benchmark's largest batch. ``inputs`` is the folder that
    holds MiniLM as ``minilm``."""
    found = {}
    for entry in ZOO:
        source = entry.load(inputs, "cpu")
        with tempfile.TemporaryDirectory(prefix="enginewright-looks-") as folder:
            exported = export_model(source, Path(folder), [])
            found[entry.name] = dataclasses.asdict(
                look(exported.path, example_inputs(exported.interface, 1), BATCHES[-1]))
        print(entry.name, found[entry.name], flush=True)
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
