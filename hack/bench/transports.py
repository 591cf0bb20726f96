"""One gRPC client, one request at a time, with its tensors in the message or in shared memory.

A client that sends the same regions again and again need not write its message each time: it is made once here, so that
what is measured is Triton and gRPC rather than Python.
"""

from __future__ import annotations

import uuid
from math import prod
from typing import Any

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2

from enginewright_builder.load.channels import METHOD, OPTIONS
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.model_config import DATATYPES

TRANSPORTS = ("grpc", "system-shared-memory", "cuda-shared-memory")
# Of the time of a request, by Triton's statistics. The first is from its arrival to its answer, the others are within.
PARTS = ("success", "queue", "compute_input", "compute_infer", "compute_output")


class Client:
    """``ask`` sends ``inputs`` and returns once the answer is there. ``outputs`` tells names, types and shapes of the
    answers, whose room in shared memory is taken beforehand."""

    def __init__(self, url: str, model: str, transport: str, inputs: Tensors, outputs: Tensors) -> None:
        self._client = triton.InferenceServerClient(url)
        self._model, self._transport = model, transport
        self._prefix = f"ways-{uuid.uuid4().hex[:8]}-"
        self._regions: dict[str, Any] = {}
        self._outputs = outputs
        self._channel = grpc.insecure_channel(url, options=OPTIONS)
        self._call = self._channel.unary_unary(METHOD)
        self._request = self._encoded(inputs)
        self._last = b""

    def ask(self) -> None:
        self._last = self._call(self._request)

    def answer(self, name: str) -> Any:
        """Of the last request."""
        if self._transport == "grpc":
            return triton.InferResult(service_pb2.ModelInferResponse.FromString(self._last)).as_numpy(name)
        like = self._outputs[name]
        return self._shared().get_contents_as_numpy(self._regions[f"out-{name}"], like.dtype, list(like.shape))

    def spent(self) -> tuple[int, dict[str, int]]:
        """How many requests the server has answered, and the nanoseconds that these took in each of :data:`PARTS`."""
        (model,) = self._client.get_inference_statistics(self._model).model_stats
        found = model.inference_stats
        return found.success.count, {name: getattr(found, name).ns for name in PARTS}

    def close(self) -> None:
        if self._transport != "grpc":
            self._unregister()
            for region in self._regions.values():
                self._shared().destroy_shared_memory_region(region)
        self._channel.close()
        self._client.close()

    def _encoded(self, inputs: Tensors) -> bytes:
        message = service_pb2.ModelInferRequest(model_name=self._model)
        for name, array in inputs.items():
            tensor = self._input(name, array)
            message.inputs.append(tensor._get_tensor())
            if (content := tensor._get_content()) is not None:
                message.raw_input_contents.append(content)
        message.outputs.extend(self._output(name, array)._get_tensor() for name, array in self._outputs.items())
        return bytes(message.SerializeToString())

    def _input(self, name: str, array: Any) -> triton.InferInput:
        tensor = triton.InferInput(name, list(array.shape), DATATYPES[array.dtype.name].removeprefix("TYPE_"))
        if self._transport == "grpc":
            tensor.set_data_from_numpy(array)
        else:
            region = self._region(f"in-{name}", array.nbytes)
            self._shared().set_shared_memory_region(region, [np.ascontiguousarray(array)])
            tensor.set_shared_memory(self._prefix + f"in-{name}", array.nbytes)
        return tensor

    def _output(self, name: str, array: Any) -> triton.InferRequestedOutput:
        wanted = triton.InferRequestedOutput(name)
        if self._transport != "grpc":
            size = prod(array.shape) * array.dtype.itemsize
            self._region(f"out-{name}", size)
            wanted.set_shared_memory(self._prefix + f"out-{name}", size)
        return wanted

    def _region(self, key: str, size: int) -> Any:
        name = self._prefix + key
        if self._transport == "cuda-shared-memory":
            region = self._shared().create_shared_memory_region(name, size, 0)
            self._client.register_cuda_shared_memory(name, self._shared().get_raw_handle(region), 0, size)
        else:
            region = self._shared().create_shared_memory_region(name, f"/{name}", size)
            self._client.register_system_shared_memory(name, f"/{name}", size)
        self._regions[key] = region
        return region

    def _unregister(self) -> None:
        for key in self._regions:
            if self._transport == "cuda-shared-memory":
                self._client.unregister_cuda_shared_memory(self._prefix + key)
            else:
                self._client.unregister_system_shared_memory(self._prefix + key)

    def _shared(self) -> Any:
        if self._transport == "cuda-shared-memory":
            from tritonclient.utils import cuda_shared_memory as shared
        else:
            from tritonclient.utils import shared_memory as shared
        return shared
