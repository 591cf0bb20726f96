"""Publishes a copy of an engine under another fingerprint, sound or with one fault, and prints its outcome as JSON.

Runs inside a pod of the builder image that mounts the store: ``python3 - FINGERPRINT TARGET FAULT < plant.py``. So a
candidate is an engine like any other to the operator and its pods (whole, digests right), and costs no build.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from enginewright_builder.contract import MANIFEST_FILE, MODEL_REPOSITORY, SMOKE_FILE
from enginewright_builder.engine_store.folder import lookup, publish
from enginewright_builder.engine_store.manifest import manifest_digest

STORE = Path("/volumes/enginewright-store")

# Spins for as long as the work took and a millisecond more, for what Triton adds to both: at least twice as slow.
SLOW = """

import time as _time

class _Slow(TritonPythonModel):
    def execute(self, requests):
        began = _time.perf_counter()
        responses = super().execute(requests)
        until = 2 * _time.perf_counter() - began + 0.001
        while _time.perf_counter() < until:
            pass
        return responses

TritonPythonModel = _Slow
"""
CRASH = """

class _Crashing(TritonPythonModel):
    def initialize(self, args):
        raise RuntimeError("a fault was planted: this engine does not load")

TritonPythonModel = _Crashing
"""
# The operator makes up numbers from -1 to 1 (enginewright.core.probe); clients send others, too.
NARROW = """

class _Narrow(TritonPythonModel):
    def run(self, batch):
        known = [all(abs(array).max(initial=0) <= 1 for array in inputs.values()) for inputs in batch]
        return [{name: array if right else -array for name, array in outputs.items()}
                for right, outputs in zip(known, super().run(batch))]

TritonPythonModel = _Narrow
"""


def equal(folder: Path) -> None:
    """A sound engine."""


def slow(folder: Path) -> None:
    _append(folder, SLOW)


def crashing(folder: Path) -> None:
    _append(folder, CRASH)


def wrong(folder: Path) -> None:
    """Other weights of the same signature; what the source model answered, and where it is kept the model itself, are
    still beside them."""
    random, changed = np.random.default_rng(7), 0
    # One for each range of batches, where the race found several to be the fastest.
    for path in sorted((folder / MODEL_REPOSITORY).rglob("*.onnx")):
        model = onnx.load(path)
        for tensor in model.graph.initializer:
            values = numpy_helper.to_array(tensor)
            if values.dtype in (np.float32, np.int8, np.uint8) and values.ndim == 2:
                tensor.CopyFrom(numpy_helper.from_array(random.permutation(values), tensor.name))
                changed += 1
        onnx.save(model, path)
    if not changed:
        raise ValueError(f"{folder} has no ONNX with weights to change")


def unrecorded(folder: Path) -> None:
    """Other weights, and nothing recorded that would show it before there is traffic."""
    wrong(folder)
    (folder / SMOKE_FILE).unlink()


def narrow(folder: Path) -> None:
    """Right on inputs that the operator makes up and negated on others; nothing is recorded that would show it."""
    _append(folder, NARROW)
    (folder / SMOKE_FILE).unlink()


FAULTS: dict[str, Callable[[Path], None]] = {
    fault.__name__: fault for fault in (equal, slow, crashing, wrong, unrecorded, narrow)}


def _append(folder: Path, code: str) -> None:
    (path,) = folder.rglob("model.py")
    path.write_text(path.read_text() + code)


def main(fingerprint: str, target: str, fault: str) -> None:
    found = lookup(STORE, fingerprint)
    assert found is not None, f"the store has no engine {fingerprint}"
    with tempfile.TemporaryDirectory(dir=STORE, prefix=".planted-") as scratch:
        staging = Path(scratch) / "engine"
        shutil.copytree(STORE / fingerprint, staging, ignore=shutil.ignore_patterns(MANIFEST_FILE))
        FAULTS[fault](staging)
        manifest = publish(staging, STORE, target, outcome=replace(found.outcome, fingerprint=target))
    print(replace(manifest.outcome, manifest_digest=manifest_digest(manifest)).to_json())


if __name__ == "__main__":
    main(*sys.argv[1:])
