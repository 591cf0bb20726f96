"""Runs ``model.onnx`` with ONNX Runtime inside Triton's Python backend.

Copied beside the model into the version folder; it may import only the standard library, NumPy and ONNX Runtime.
All requests of one call that have equal shapes run as one batch; nothing is padded. An error answers the request that
caused it and leaves the others alone.

``config.pbtxt`` parameters: ``model_file`` (default ``model.onnx``), ``threads`` of one instance (default: ONNX
Runtime's own choice), and any ``session.*`` entry of ONNX Runtime's session configuration.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Before the import: ONNX Runtime otherwise tries to persist a telemetry identifier, on a root that is read-only.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
# A request's place in the call, and its inputs.
Member = tuple[int, Arrays]


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        config = json.loads(args["model_config"])
        parameters = {key: entry["string_value"] for key, entry in config.get("parameters", {}).items()}
        self.batched = config["max_batch_size"] > 0
        self.input_names = [entry["name"] for entry in config["input"]]
        self.output_names = [entry["name"] for entry in config["output"]]
        # A scalar per batch element travels as [batch, 1]; see ``reshape`` in config.pbtxt.
        self.scalar_inputs = {entry["name"] for entry in config["input"] if "reshape" in entry}
        self.scalar_outputs = {entry["name"] for entry in config["output"] if "reshape" in entry}
        path = Path(args["model_repository"]) / args["model_version"] / parameters.get("model_file", "model.onnx")
        self.session = ort.InferenceSession(str(path), session_options(parameters), providers=providers(args))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        responses: list[Any] = [None] * len(requests)
        groups: dict[Any, list[Member]] = {}
        for index, request in enumerate(requests):
            try:
                inputs = self.read(request)
            except Exception as error:
                responses[index] = failed(error)
                continue
            # Only equal shapes (apart from the batch) fit into one array; an unbatched model always runs alone.
            key = tuple((array.shape[1:], array.dtype.str) for array in inputs.values()) if self.batched else index
            groups.setdefault(key, []).append((index, inputs))
        for group in groups.values():
            for index, response in self.answer(group, requests):
                responses[index] = response
        return responses

    def finalize(self) -> None:
        self.session = None

    def read(self, request: Any) -> Arrays:
        inputs: Arrays = {}
        for name in self.input_names:
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is None:
                raise ValueError(f"input {name!r} is missing")
            array = tensor.as_numpy()  # a view of shared memory
            if name in self.scalar_inputs and array.ndim == 2:
                array = array[:, 0]
            inputs[name] = texts(array) if array.dtype == np.object_ else array
        if self.batched and len({array.shape[0] for array in inputs.values()}) != 1:
            sizes = {name: array.shape[0] for name, array in inputs.items()}
            raise ValueError(f"inputs have different batch sizes: {sizes}")
        return inputs

    def answer(self, group: Sequence[Member], requests: Sequence[Any]) -> list[tuple[int, Any]]:
        """One run for the group; if it fails, one for each, so that only the guilty request gets an error."""
        try:
            outputs = self.run([inputs for _, inputs in group])
        except Exception as error:
            if len(group) == 1:
                return [(group[0][0], failed(error))]
            return [pair for member in group for pair in self.answer([member], requests)]
        return [(index, self.respond(requests[index], arrays))
                for (index, _), arrays in zip(group, outputs, strict=True)]

    def run(self, batch: Sequence[Arrays]) -> list[list[NDArray[Any]]]:
        """Outputs of each member; a single member goes in and out without a copy."""
        if len(batch) == 1:
            return [self.session.run(self.output_names, batch[0])]
        joined = {name: np.concatenate([inputs[name] for inputs in batch]) for name in self.input_names}
        outputs = self.session.run(self.output_names, joined)
        total = len(joined[self.input_names[0]])
        for name, array in zip(self.output_names, outputs, strict=True):
            if not array.ndim or len(array) != total:
                raise ValueError(f"output {name!r} of shape {array.shape} cannot be split over a batch of {total}")
        sizes = np.cumsum([len(inputs[self.input_names[0]]) for inputs in batch])[:-1]
        parts = [np.split(array, sizes) for array in outputs]  # views
        return [[part[position] for part in parts] for position in range(len(batch))]

    def respond(self, request: Any, arrays: Sequence[NDArray[Any]]) -> Any:
        wanted = set(request.requested_output_names()) or set(self.output_names)
        tensors = []
        for name, array in zip(self.output_names, arrays, strict=True):
            if name in wanted:
                whole = array[:, None] if name in self.scalar_outputs and array.ndim == 1 else array
                tensors.append(pb_utils.Tensor(name, np.ascontiguousarray(whole)))
        return pb_utils.InferenceResponse(output_tensors=tensors)


def session_options(parameters: Mapping[str, str]) -> ort.SessionOptions:
    options = ort.SessionOptions()
    if threads := int(parameters.get("threads", "0")):
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    for key, value in parameters.items():
        if key.startswith("session."):
            options.add_session_config_entry(key, value)
    return options


def providers(args: Mapping[str, str]) -> list[Any]:
    cpu = "CPUExecutionProvider"
    if args["model_instance_kind"] != "GPU" or "CUDAExecutionProvider" not in ort.get_available_providers():
        return [cpu]
    return [("CUDAExecutionProvider", {"device_id": args["model_instance_device_id"]}), cpu]


def texts(array: NDArray[Any]) -> NDArray[Any]:
    """Triton sends strings as bytes, ONNX Runtime takes ``str``."""
    decoded = [item.decode() if isinstance(item, bytes) else item for item in array.ravel()]
    return np.array(decoded, dtype=np.object_).reshape(array.shape)


def failed(error: Exception) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"{type(error).__name__}: {error}"))
