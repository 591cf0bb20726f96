"""A streaming LSTM as exporters write it, and the source's own answers to sequences, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from support.inputs.graphs import F32, model, node, value

FEATURES, HIDDEN, ANSWERS = 16, 24, 4
STATE = (("h", "hn"), ("c", "cn"))


def lstm(batch: int | str = "batch", *, hidden: int | str = HIDDEN) -> onnx.ModelProto:
    """``x [batch, 16]`` and the state ``h``, ``c`` ``[1, batch, 24]`` to ``y [batch, 4]``, ``hn`` and ``cn``."""
    random = np.random.default_rng(26)

    def weights(*shape: int) -> NDArray[Any]:
        made: NDArray[Any] = random.normal(size=shape) / shape[-1] ** 0.5
        return made.astype(np.float32)

    state = [1, batch, hidden]
    return model(
        [node("Unsqueeze", "x zero", "steps"), helper.make_node("LSTM", ["steps", "w", "r", "b", "", "h", "c"],
                                                                ["", "hn", "cn"], hidden_size=HIDDEN),
         node("Squeeze", "hn zero", "out"), node("MatMul", "out v", "y")],
        [value("x", F32, [batch, FEATURES]), value("h", F32, state), value("c", F32, state)],
        [value("y", F32, [batch, ANSWERS]), value("hn", F32, state), value("cn", F32, state)],
        {"w": weights(1, 4 * HIDDEN, FEATURES), "r": 2 * weights(1, 4 * HIDDEN, HIDDEN), "b": weights(1, 8 * HIDDEN),
         "v": weights(HIDDEN, ANSWERS), "zero": np.array([0])})


def filters(*, hidden: int | str = 2, mixed: bool = False) -> onnx.ModelProto:
    """``x [batch, 16]`` and ``state [2, batch, 8]``, of which a part goes with each step, to ``y [batch, 8]``. Where
    ``mixed`` is true, what one row is answered depends on the other rows."""
    weights = np.random.default_rng(27).normal(size=(FEATURES, 8)).astype(np.float32)
    rows = [node("ReduceMean", "mean", "all", axes=[0]), node("Add", "mean all", "y")] if mixed else [
        node("Identity", "mean", "y")]
    state, half = [hidden, "batch", 8], np.array([0.5, 0.9] if hidden == 2 else [0.5], np.float32)
    return model(
        [node("MatMul", "x w", "in"), node("Unsqueeze", "in zero", "layer"), node("Mul", "state half", "kept"),
         node("Add", "kept layer", "stateN"), node("ReduceMean", "stateN", "mean", axes=[0], keepdims=0), *rows],
        [value("x", F32, ["batch", FEATURES]), value("state", F32, state)],
        [value("y", F32, ["batch", 8]), value("stateN", F32, state)],
        {"w": weights, "zero": np.array([0]), "half": half[:, None, None]}, opset=17)


def behind() -> onnx.ModelProto:
    """Time in front of the batch, as recurrent operators have it."""
    return model([node("Mul", "state half", "kept"), node("Add", "kept x", "stateN"), node("Tanh", "stateN", "y")],
                 [value(name, F32, [1, "batch", FEATURES]) for name in ("x", "state")],
                 [value(name, F32, [1, "batch", FEATURES]) for name in ("y", "stateN")],
                 {"half": np.float32(0.5)})


def forgetful(path: Path) -> onnx.ModelProto:
    """``path``, of :func:`lstm`, with zeros in place of the ``h`` that it is given."""
    made = onnx.load(path)
    made.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "nothing"))
    made.graph.node.insert(0, node("Mul", "h nothing", "forgotten"))
    for one in made.graph.node[1:]:
        one.input[:] = ["forgotten" if name == "h" else name for name in one.input]
    return made


def sequences(count: int, steps: int, seed: int = 0) -> NDArray[Any]:
    """``[count, steps, 16]``"""
    return np.random.default_rng(seed).normal(size=(count, steps, FEATURES)).astype(np.float32)


class Source:
    """What a client of the file itself has to do: it carries the state, which begins with ``begins``, or zeros."""

    def __init__(self, path: Path, state: Mapping[str, tuple[str, tuple[int, ...]]],
                 begins: Mapping[str, NDArray[Any]] | None = None) -> None:
        self._session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self._state, self._begins = state, begins or {}

    def answers(self, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names = [one.name for one in self._session.get_outputs()]
        state = {name: self._begins.get(name, np.zeros(shape, np.float32)) for name, (_, shape) in self._state.items()}
        found = []
        for step in steps:
            answer = dict(zip(names, self._session.run(names, {**step, **state}), strict=True))
            state = {name: answer.pop(output) for name, (output, _) in self._state.items()}
            found.append(answer)
        return found


def lstm_source(path: Path, begins: Mapping[str, NDArray[Any]] | None = None) -> Source:
    return Source(path, {name: (output, (1, 1, HIDDEN)) for name, output in STATE}, begins)


def first_state() -> NDArray[Any]:
    """For ``h`` of :func:`lstm`, as a file would have it."""
    return np.random.default_rng(28).normal(size=(1, 1, HIDDEN)).astype(np.float32)
