"""Quantised copies of a language model: what is on disk means the weights that there were, but for rounding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench import llm_quantised

PLAIN, KEPT = "model.layers.0.mlp.up_proj", "model.embed_tokens.weight"


def read(stored: dict[str, torch.Tensor]) -> torch.Tensor:
    """As the format says."""
    scale = stored[f"{PLAIN}.weight_scale"].float()
    if f"{PLAIN}.weight_packed" not in stored:
        return stored[f"{PLAIN}.weight"].float() * scale
    packed, (rows, columns) = stored[f"{PLAIN}.weight_packed"], stored[f"{PLAIN}.weight_shape"].tolist()
    assert packed.shape == (rows, columns // 8)
    values = torch.stack([(packed >> (4 * place)) & 15 for place in range(8)], 2).reshape(rows, columns) - 8
    return values * scale.repeat_interleave(llm_quantised.GROUP, 1)


@pytest.mark.parametrize(("form", "error"), [("int8", 1 / 127), ("fp8", 1 / 14), ("int4", 1 / 6)])
def test_a_copy_means_the_same_weights_but_for_rounding(form: str, error: float, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    torch.manual_seed(1)
    weight, kept = torch.randn(24, 128).to(torch.bfloat16), torch.randn(8, 128).to(torch.bfloat16)
    save_file({f"{PLAIN}.weight": weight, KEPT: kept}, source / "model.safetensors")
    (source / "config.json").write_text('{"vocab_size": 8}')
    (source / "tokenizer.json").write_text("{}")
    llm_quantised.write(source, target, form)
    stored = load_file(target / "model.safetensors")
    assert torch.equal(stored[KEPT], kept)
    assert (read(stored) - weight.float()).abs().max() <= error * weight.float().abs().max()
    config = json.loads((target / "config.json").read_text())
    assert config["vocab_size"] == 8
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
    assert (target / "tokenizer.json").is_file()
