"""python smollm2.py GGUF FOLDER: a Hugging Face folder in BF16 of a Llama model in GGUF, with its tokeniser.

transformers refuses to save what it read from GGUF, so the weights go into a fresh model of the same configuration.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM


def convert(source: Path, folder: Path) -> None:
    names = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    read = AutoModelForCausalLM.from_pretrained(**names, dtype=torch.bfloat16)
    config = AutoConfig.from_pretrained(**names)
    fresh = LlamaForCausalLM(config).bfloat16()
    fresh.load_state_dict(read.state_dict())
    fresh.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**names).save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
