"""A small model whose folder has what stands before and behind it in Python: words that are folded, found by a regular
expression and hashed, which no graph of ONNX does, and the names of classes."""

from __future__ import annotations

import json
import re
import select
import subprocess
import sys
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import Interface, PythonSteps, TensorSpec

SLOTS, NAMES = 32, ("rain", "sun", "snow", "Föhn")
STEPS = '''
import re, unicodedata, zlib
from pathlib import Path

import numpy as np

from helper import SLOTS

NAMES = Path(__file__).with_name("names.txt").read_text(encoding="utf-8").split()


def bag(inputs):
    made = np.zeros((len(inputs["text"]), SLOTS), np.float32)
    for row, text in zip(made, inputs["text"][:, 0]):
        if text == "break":
            raise LookupError("this text breaks the function")
        for word in re.findall(r"\\w+", unicodedata.normalize("NFKC", text).casefold()):
            row[zlib.crc32(word.encode()) % SLOTS] += 1
    return {"bag": made}


def named(outputs):
    best = outputs["scores"].argmax(axis=1)
    return {"label": np.array([[NAMES[one]] for one in best]), "scores": outputs["scores"]}


def cut(outputs):
    return {"label": outputs["scores"][:1]}
'''
TEXT = TensorSpec(name="text", dtype="string", shape=("batch", 1))
LABEL = TensorSpec(name="label", dtype="string", shape=("batch", 1))
SCORES = TensorSpec(name="scores", dtype="float32", shape=("batch", len(NAMES)))
BOTH = Interface(inputs=(TEXT,), outputs=(LABEL, SCORES), python_steps=PythonSteps(
    preprocess="steps.py:bag", postprocess="steps.py:named", files=("names.txt", "helper.py")))
TEXTS = ["rain in the Straße, ﬁve times", "Schnee 雪", "", "the sun, THE SUN"]


def weights() -> Any:
    return np.random.default_rng(0).normal(size=(SLOTS, len(NAMES))).astype(np.float32)


def folder(path: Path, steps: str = STEPS) -> Path:
    """What a user's source folder has."""
    path.mkdir(parents=True)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["bag", "weights"], ["scores"])], "words",
        [helper.make_tensor_value_info("bag", TensorProto.FLOAT, ["batch", SLOTS])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", len(NAMES)])],
        [numpy_helper.from_array(weights(), "weights")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path / "model.onnx")
    (path / "steps.py").write_text(steps, encoding="utf-8")
    (path / "helper.py").write_text(f"SLOTS = {SLOTS}\n")
    (path / "names.txt").write_text(" ".join(NAMES), encoding="utf-8")
    return path


def evaluation(path: Path) -> Path:
    lines = [{"text": [f"day {number} of {number * number} words in the {'rain' if number % 2 else 'sun'}"]}
             for number in range(64)]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def client(texts: Sequence[str]) -> tuple[list[str], Any]:
    """Labels and scores where the client does all of it."""
    made = np.zeros((len(texts), SLOTS), np.float32)
    for row, text in zip(made, texts, strict=True):
        for word in re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()):
            row[zlib.crc32(word.encode()) % SLOTS] += 1
    scores = made @ weights()
    return [NAMES[one] for one in scores.argmax(axis=1)], scores


@contextmanager
def runner(at: Path) -> Iterator[subprocess.Popen[bytes]]:
    """What a build Job's container for functions runs, once its socket is there, as its startup probe looks for it."""
    with subprocess.Popen([sys.executable, "-m", "enginewright_builder", "python-steps", "--socket", str(at)],
                          stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            while not at.is_socket():
                assert not select.select([process.stdout], [], [], 0.05)[0], "it has ended"
            yield process
        finally:
            process.kill()
