"""PyTorch in Triton's Python backend, as people serve a model without Enginewright: ``program.pt2`` beside this file,
eager or compiled, on the instance's GPU. ``bench.ways`` copies it into the version folder; it imports nothing of this
repository."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

# Triton's stub starts its interpreter without the environment, and so without PYTHONPATH.
sys.path[:0] = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
                if entry and entry not in sys.path]


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        import torch
        import torch.utils.dlpack

        self.torch = torch
        config = json.loads(args["model_config"])
        parameters = {key: entry["string_value"] for key, entry in config["parameters"].items()}
        self.names = [entry["name"] for entry in config["input"]], [entry["name"] for entry in config["output"]]
        gpu = args["model_instance_kind"] == "GPU"
        self.device = torch.device("cuda", int(args["model_instance_device_id"])) if gpu else torch.device("cpu")
        folder = Path(args["model_repository"]) / args["model_version"]
        module = torch.export.load(folder / "program.pt2").module()
        self.module = torch.compile(module, mode="reduce-overhead") if parameters["compile"] == "True" else module

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return [self.answer(request) for request in requests]

    def answer(self, request: Any) -> Any:
        torch = self.torch
        with torch.inference_mode():
            arguments = [self.received(pb_utils.get_input_tensor_by_name(request, name)) for name in self.names[0]]
            answers = self.module(*arguments)
            if isinstance(answers, torch.Tensor):
                answers = [answers]
            return pb_utils.InferenceResponse(output_tensors=[
                pb_utils.Tensor(name, answer.float().cpu().numpy())
                for name, answer in zip(self.names[1], answers, strict=True)])

    def received(self, tensor: Any) -> Any:
        return self.torch.utils.dlpack.from_dlpack(tensor.to_dlpack()).to(self.device)
