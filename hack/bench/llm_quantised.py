"""Copies of a language model with quantised weights, in the form that compressed-tensors has on disk.

Rounded to the nearest value, without calibration: what a build is to judge, not what a team would serve. A scale for
each output channel, or for each group of input channels; see the format's own description in vLLM's package
compressed_tensors.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

# Of a Llama: the matrices that vLLM quantises. Embeddings, norms and the head stay.
QUANTISED = re.compile(r"model\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)\.weight")
GROUP = 64
Tensors = Mapping[str, torch.Tensor]


def int8(weight: torch.Tensor) -> Tensors:
    scale = weight.abs().amax(1, keepdim=True).clamp_min(1e-8) / 127
    return {"weight": (weight / scale).round().clamp(-127, 127).to(torch.int8), "weight_scale": scale}


def fp8(weight: torch.Tensor) -> Tensors:
    scale = weight.abs().amax(1, keepdim=True).clamp_min(1e-8) / torch.finfo(torch.float8_e4m3fn).max
    return {"weight": (weight / scale).to(torch.float8_e4m3fn), "weight_scale": scale}


def int4(weight: torch.Tensor) -> Tensors:
    """Eight values of one row in 32 bits, the first in the lowest; 8 stands for 0."""
    rows, columns = weight.shape
    grouped = weight.reshape(rows, columns // GROUP, GROUP)
    scale = grouped.abs().amax(2, keepdim=True).clamp_min(1e-8) / 7
    values = ((grouped / scale).round().clamp(-8, 7) + 8).to(torch.int64).reshape(rows, columns // 8, 8)
    packed = (values << torch.arange(0, 32, 4)).sum(2)
    return {"weight_packed": torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32),
            "weight_scale": scale.squeeze(2).to(torch.bfloat16), "weight_shape": torch.tensor([rows, columns])}


def _numbers(bits: int, kind: str, strategy: str, **more: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "symmetric": True, "strategy": strategy, "dynamic": False, **more}


FORMS: Mapping[str, tuple[Callable[[torch.Tensor], Tensors], str, dict[str, Any], dict[str, Any] | None]] = {
    "int8": (int8, "int-quantized", _numbers(8, "int", "channel"), _numbers(8, "int", "token", dynamic=True)),
    "fp8": (fp8, "float-quantized", _numbers(8, "float", "channel"), _numbers(8, "float", "token", dynamic=True)),
    "int4": (int4, "pack-quantized", _numbers(4, "int", "group", group_size=GROUP), None),
}


def write(source: Path, target: Path, form: str) -> None:
    """``form`` is of :data:`FORMS`. Activations are quantised as they come with int8 and fp8, and not with int4."""
    quantise, layout, weights, activations = FORMS[form]
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        if QUANTISED.fullmatch(name):
            stem = name.removesuffix("weight")
            tensors |= {stem + part: value.contiguous() for part, value in quantise(tensor.float()).items()}
        else:
            tensors[name] = tensor
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": layout, "quantization_status": "compressed",
        "ignore": ["lm_head"], "kv_cache_scheme": None,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": activations,
                                      "output_activations": None}}}
    (target / "config.json").write_text(json.dumps(config, indent=1))
