"""Serves engines inside Triton's Python backend, each batch by the engine that ``engines.json`` names for it.

Copied into the version folder, with the session module of every runtime that is named there; it may import only the
standard library and NumPy, and the session modules what they run with. All requests of one call that have equal shapes
run as one batch, and those of different length where padding is harmless. An error answers the request that caused it
and leaves the others alone; Triton counts such an answer as a success, so :class:`Tally` counts it as a failure. Where
the engine fails on all requests of a call, the call fails, and Triton itself counts failures of the backend.

Where ``tokeniser.json`` lies beside it clients send texts: ``tokeniser.py`` makes the engines' inputs of those of
each request. From there on that is as a request of token ids. Where ``own_steps.json`` lies there, functions of the
user's own (``own_steps.py``) make what the engines take of each request, or what it gets of their answer: each request
by itself, so that no other changes its answer.

Triton copies each input once, into memory that it shares with this process, or hands over where it lies on the GPU. A
session that takes members copies from there to the engine's own buffers, and nothing lies between.

``engines.json`` lists engines ascending by the largest batch that each takes (``up_to``)::

    {"engines": [{"up_to": 8, "runtime": "tensorrt", "files": ["m0/model.plan"], "buckets": [1, 8], "parameters": {}}]}

``runtime`` is ``onnxruntime``, ``tensorrt`` or ``torch``; ``buckets`` are the batches to capture as CUDA graphs. The
parameters of ``config.pbtxt`` (``threads`` of one instance, ``session.*``) hold for all engines, an engine's own first.
Where it has ``lengths`` (``lengths.py``) requests of different length run together, too. Where it has ``sequences``
(``sequences.py``) the engine takes the state of a request's sequence beside what clients send, and what it answers as
state stays here.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
# What an engine takes or answers: arrays, or tensors of a runtime that takes DLPack.
Tensors = dict[str, Any]
# A request's place in the call, and what the engines take of it.
Member = tuple[int, Tensors]
# Triton's stub starts its interpreter without the environment, and so without PYTHONPATH.
sys.path[:0] = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
                if entry and entry not in sys.path]
# What this process is doing, into the server's log: for one that hangs.
faulthandler.register(signal.SIGUSR1)
TOKENISER_FILE, OWN_STEPS_FILE = "tokeniser.json", "own_steps.json"
OWN, PADDING = "enginewright_positions_total", "enginewright_padding_positions_total"
WAITED, TOKENISED = "enginewright_tokenising_seconds_total", "enginewright_tokenised_requests_total"
BEFORE, BEHIND = "enginewright_preprocessing_seconds_total", "enginewright_postprocessing_seconds_total"
STEPPED = "enginewright_python_steps_requests_total"
FAILED = "enginewright_failed_requests_total"
COUNTED = {OWN: "Positions (rows times length) of requests that were run",
           PADDING: "Positions of padding that were run beside them",
           WAITED: "Seconds that requests waited until their texts were token ids", TOKENISED: "Requests of texts",
           BEFORE: "Seconds that requests waited for the user's function before the engine",
           BEHIND: "Seconds that requests waited for the user's function behind it",
           STEPPED: "Requests with functions of the user's own",
           FAILED: "Requests answered with an error, which Triton counts as successes"}
# By whose fault a request failed: the engine did not run it, or its inputs were not what the engine takes.
BACKEND, REQUEST = "backend", "request"
MODULES = {"onnxruntime": "ort_session", "tensorrt": "trt_session", "torch": "aoti_session"}


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.batched = config["max_batch_size"] > 0
        self.input_names = [entry["name"] for entry in config["input"]]
        self.output_names = [entry["name"] for entry in config["output"]]
        # A scalar per batch element travels as [batch, 1]; see ``reshape`` in config.pbtxt.
        self.scalar_inputs = {entry["name"] for entry in config["input"] if "reshape" in entry}
        self.scalar_outputs = {entry["name"] for entry in config["output"] if "reshape" in entry}
        folder = Path(args["model_repository"]) / args["model_version"]
        parameters = {key: entry["string_value"] for key, entry in config.get("parameters", {}).items()}
        device = int(args["model_instance_device_id"]) if args["model_instance_kind"] == "GPU" else -1
        described = json.loads((folder / "engines.json").read_text(encoding="utf-8"))
        joins = self.batched and described.get("lengths")
        self.lengths: Any = loaded(folder, "lengths").Lengths(described["lengths"]) if joins else None
        kept = described.get("sequences")
        self.sequences: Any = loaded(folder, "sequences").Sequences(kept) if kept else None
        sessions: dict[str, Any] = {}
        self.engines: list[tuple[int, Any]] = []
        for entry in described["engines"]:  # one engine may serve several ranges, and is loaded once
            key = entry["files"][0]
            if key not in sessions:
                sessions[key] = opened(folder, entry, device, parameters)
            self.engines.append((entry["up_to"], sessions[key]))
        # Makes what the engines take of the texts that clients send; None where these send the engines' own inputs.
        self.texts: Any = None
        if (described_by := folder / TOKENISER_FILE).exists():
            self.texts = loaded(folder, "tokeniser").Tokeniser(described_by, int(parameters.get("threads", "0")))
        # Functions of the user's own; None where there are none.
        self.own: Any = None
        if (own := folder / OWN_STEPS_FILE).exists():
            self.own = loaded(folder, "own_steps").OwnSteps(own)
        readers = [session for session in sessions.values() if session.takes_members]
        self.tally = Tally(args, [OWN, PADDING, *((WAITED, TOKENISED) if self.texts is not None else ()),
                                  *((BEFORE, BEHIND, STEPPED) if self.own is not None else ())])
        self.shared = loaded(folder, "shared_memory").SharedMemory(
            [session.register for session in readers]) if readers else None

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        given = [attempted(self.read, request) for request in requests]
        if self.own is not None and self.own.prepares:
            given = self.stepped(self.own.before, given, BEFORE)
        taken = given
        if self.texts is not None:
            began = time.perf_counter()
            taken = self.tokenised(given)
            waited = (time.perf_counter() - began) * len(given)  # all requests of a call wait for all of its texts
            self.tally.count({WAITED: waited, TOKENISED: len(given)})
        groups: dict[Any, list[Member]] = {}
        for index, inputs in enumerate(taken):
            if not isinstance(inputs, Exception):
                groups.setdefault(self.key(inputs) if self.batched else index, []).append((index, inputs))
        answers = dict(pair for group in groups.values() for pair in self.answer(group))
        if self.sequences is not None:
            self.keep_states(requests, answers)
        if self.own is not None:
            self.tally.count({STEPPED: len(requests)})
        if self.own is not None and self.own.finishes:
            answers = dict(zip(answers, self.stepped(self.own.behind, list(answers.values()), BEHIND), strict=True))
        self.tally.report()
        errors = [one for one in answers.values() if isinstance(one, Exception)]
        if errors and len(errors) == len(requests):
            raise RuntimeError(reason(errors[0]))
        responses = [self.respond(request, answers.get(index, taken[index])) for index, request in enumerate(requests)]
        # Last of all: where an answer cannot be made the call fails, and Triton counts all of its requests itself.
        self.tally.fail({BACKEND: len(errors), REQUEST: len(requests) - len(answers)})
        return responses

    def stepped(self, function: Callable[[Any], Tensors], given: Sequence[Tensors | Exception], counted: str
                ) -> list[Tensors | Exception]:
        """By a function of the user's own; all requests of a call wait for it."""
        began = time.perf_counter()
        made = [one if isinstance(one, Exception) else attempted(function, one) for one in given]
        self.tally.count({counted: (time.perf_counter() - began) * len(given)})
        return made

    def keep_states(self, requests: Sequence[Any], answers: Mapping[int, Any]) -> None:
        for index, request in enumerate(requests):
            answer = answers.get(index)
            self.sequences.keep(request, None if isinstance(answer, Exception) else answer)

    def tokenised(self, given: Sequence[Tensors | Exception]) -> list[Tensors | Exception]:
        """What the engines take of the texts of each request, filled up to the longest of these as the source does it:
        a request is answered as it was proven, also by engines that scale what they quantise by all that they run. All
        texts of a call go to the tokenizer at once; if it takes them not, those of each request by themselves."""
        texts = [one if isinstance(one, Exception) else one[self.texts.input] for one in given]
        known = [one for one in texts if not isinstance(one, Exception)]
        if not known:
            return list(texts)
        try:
            rows = iter(self.texts.rows(np.concatenate(known)))
        except ValueError as error:
            if len(known) == 1:
                return [one if isinstance(one, Exception) else error for one in texts]
            return [self.tokenised([one])[0] for one in given]
        return [one if isinstance(one, Exception) else self.texts.padded([next(rows) for _ in one]) for one in texts]

    def key(self, inputs: Mapping[str, Any]) -> Any:
        """Equal for requests that may run together: only equal shapes (apart from the batch) fit into one array, unless
        they are filled up, which is done in the host's memory."""
        if self.joins(inputs):
            return tuple((self.lengths.key(name, array), array.dtype) for name, array in inputs.items())
        return tuple((array.shape[1:], array.dtype, type(array)) for array in inputs.values())

    def joins(self, inputs: Mapping[str, Any]) -> bool:
        return self.lengths is not None and all(isinstance(array, np.ndarray) for array in inputs.values())

    def finalize(self) -> None:
        for _, session in self.engines:
            session.close()

    def read(self, request: Any) -> dict[str, Any]:
        """Views of shared memory, and of device memory for tensors that lie there."""
        tensors = {name: pb_utils.get_input_tensor_by_name(request, name) for name in self.input_names}
        if missing := [name for name, tensor in tensors.items() if tensor is None]:
            raise ValueError(f"input {missing[0]!r} is missing")
        if all(tensor.is_cpu() for tensor in tensors.values()):
            inputs = {name: tensor.as_numpy() for name, tensor in tensors.items()}
            if self.shared is not None:
                for array in inputs.values():
                    self.shared.pin(array)
        else:  # config.pbtxt lets them through only where one library runs all engines and takes DLPack
            inputs = {name: self.engines[0][1].receive(tensor) for name, tensor in tensors.items()}
        for name in self.scalar_inputs:
            inputs[name] = inputs[name].reshape(inputs[name].shape[:1]) if inputs[name].ndim == 2 else inputs[name]
        if self.batched and len({array.shape[0] for array in inputs.values()}) != 1:
            sizes = {name: array.shape[0] for name, array in inputs.items()}
            raise ValueError(f"inputs have different batch sizes: {sizes}")
        if self.sequences is not None:
            inputs |= self.sequences.state(request)
        if self.lengths is not None and self.texts is None:
            self.lengths.of(inputs)
        return inputs

    def answer(self, group: Sequence[Member]) -> list[tuple[int, Tensors | Exception]]:
        """One run for the group; if it fails, one for each, so that only the guilty one gets an error."""
        try:
            outputs = self.run([inputs for _, inputs in group])
        except Exception as error:
            if len(group) == 1:
                return [(group[0][0], error)]
            return [pair for member in group for pair in self.answer([member])]
        return [(place, arrays) for (place, _), arrays in zip(group, outputs, strict=True)]

    def run(self, batch: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Outputs of each member, as if it were alone."""
        if not self.joins(batch[0]):
            return self.run_equal(batch)
        outputs: list[dict[str, Any]] = [{}] * len(batch)
        for places, length in self.lengths.groups(batch):
            members = [batch[place] for place in places]
            answers = self.run_equal([self.lengths.filled(inputs, length) for inputs in members])
            for place, inputs, arrays in zip(places, members, answers, strict=True):
                outputs[place] = self.lengths.cut_back(arrays, self.lengths.of(inputs))
            own, run = self.lengths.positions(members, length)
            self.tally.count({OWN: own, PADDING: run - own})
        return outputs

    def run_equal(self, batch: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Of equal shapes; a single member goes in and out without a copy."""
        names = list(batch[0])
        rows = [inputs[names[0]].shape[0] if inputs[names[0]].ndim else 1 for inputs in batch]
        session = self.session(sum(rows))
        if session.takes_members:
            outputs: list[dict[str, Any]] = session.run_members(batch)
            return outputs
        if len(batch) == 1:
            return [session.run(batch[0])]
        joined = session.run({name: np.concatenate([inputs[name] for inputs in batch]) for name in names})
        return split(joined, rows)

    def session(self, batch: int) -> Any:
        """Triton refuses what is above the largest, and an unbatched model has one engine for everything."""
        return next((session for up_to, session in self.engines if batch <= up_to), self.engines[-1][1])

    def respond(self, request: Any, arrays: Tensors | Exception) -> Any:
        """``arrays`` are the outputs, or why there are none."""
        if isinstance(arrays, Exception):
            return failed(arrays)
        wanted = set(request.requested_output_names()) or set(self.output_names)
        tensors = []
        for name in self.output_names:
            if name in wanted:
                array = arrays[name]
                whole = array[:, None] if name in self.scalar_outputs and array.ndim == 1 else array
                tensors.append(pb_utils.Tensor(name, np.ascontiguousarray(whole)) if isinstance(whole, np.ndarray)
                               else pb_utils.Tensor.from_dlpack(name, whole))
        return pb_utils.InferenceResponse(output_tensors=tensors)


def attempted(work: Callable[[Any], Tensors], given: Any) -> Tensors | Exception:
    """What ``work`` makes of it, or why it cannot."""
    try:
        return work(given)
    except Exception as error:
        return error


def split(joined: Mapping[str, Any], rows: Sequence[int]) -> list[dict[str, Any]]:
    """Views of each member's rows."""
    for name, array in joined.items():
        if not array.ndim or len(array) != sum(rows):
            raise ValueError(f"output {name!r} of shape {array.shape} cannot be split over a batch of {sum(rows)}")
    ends = np.cumsum(rows)
    return [{name: array[end - count:end] for name, array in joined.items()}
            for count, end in zip(rows, ends, strict=True)]


class Tally:
    """Triton's metrics of one model: of what was run, by the ``names`` that :data:`COUNTED` explains, and of requests
    that failed though Triton counts them as successes. Counts nothing where the server has no metrics. Each report
    takes a message and its answer, so the replica sends one a few times a second, and of failures at once: there may be
    no further request to send it with."""

    SECONDS = 0.2

    def __init__(self, args: Mapping[str, str], names: Sequence[str]) -> None:
        labels = {"model": args["model_name"], "version": args["model_version"]}
        self._families = {name: _family(name) for name in (*names, FAILED)}  # must live as long as their metrics
        self._metrics = {name: _metric(self._families[name], labels) for name in names}
        for fault in (BACKEND, REQUEST):
            self._metrics[fault] = _metric(self._families[FAILED], {**labels, "fault": fault})
        self._counts, self._reported_at = dict.fromkeys(self._metrics, 0.0), 0.0

    def count(self, amounts: Mapping[str, float]) -> None:
        for name, amount in amounts.items():
            self._counts[name] += amount

    def fail(self, requests: Mapping[str, int]) -> None:
        """So many, by whose fault."""
        self.count(requests)
        if any(requests.values()):
            self.report(at_once=True)

    def report(self, *, at_once: bool = False) -> None:
        if (now := time.monotonic()) - self._reported_at < self.SECONDS and not at_once:
            return
        for name, metric in self._metrics.items():
            if metric is not None and self._counts[name]:
                metric.increment(self._counts[name])
        self._counts, self._reported_at = dict.fromkeys(self._counts, 0.0), now


def _family(name: str) -> Any:
    """None where the server has no metrics: it serves all the same."""
    try:
        return pb_utils.MetricFamily(name=name, description=COUNTED[name], kind=pb_utils.MetricFamily.COUNTER)
    except Exception:  # any class of the stub's
        return None


def _metric(family: Any, labels: Mapping[str, str]) -> Any:
    """None where there is no family, and where it cannot be made."""
    try:
        return None if family is None else family.Metric(labels=labels)
    except Exception:
        return None


def opened(folder: Path, entry: Mapping[str, Any], device: int, parameters: Mapping[str, str]) -> Any:
    """The session of one engine, by the module of its runtime that lies in ``folder``."""
    module = loaded(folder, MODULES[entry["runtime"]])
    # TensorRT's session has nothing to be set: no threads, and everything else is in the plan.
    settings = {} if entry["runtime"] == "tensorrt" else {"parameters": {**parameters, **entry.get("parameters", {})}}
    return module.Session(folder, entry["files"], device=device, buckets=entry.get("buckets", ()), **settings)


def loaded(folder: Path, name: str) -> Any:
    """The module ``name`` that lies in ``folder``."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{name}.py cannot be imported from {folder}")
    module = importlib.util.module_from_spec(spec)
    # Registered, or dataclasses in it would not find their own types.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def failed(error: Exception) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(reason(error)))


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
