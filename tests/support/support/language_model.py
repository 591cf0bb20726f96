"""vLLM and SmolLM2 for tests: made where they are not, and found by whatever runs in this process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from enginewright_builder.generate.packages import PACKAGES_VARIABLE

ROOT = Path(__file__).resolve().parents[3]
CACHE_VARIABLE = "VLLM_CACHE_ROOT"


@cache
def vllm() -> str:
    """What vLLM finds out of its models' code is kept beside its packages, whose name has their lock's digest: to find
    it out, vLLM is imported once more."""
    packages = Path(_printed("vllm.sh"))
    os.environ[PACKAGES_VARIABLE] = str(packages)
    os.environ[CACHE_VARIABLE] = str(packages.with_name(f"{packages.name}-found"))
    return str(packages)


@cache
def smollm2() -> Path:
    """A Hugging Face folder, not to be written to."""
    return Path(_printed("smollm2.sh"))


def _printed(script: str) -> str:
    done = subprocess.run([str(ROOT / "hack" / "dev" / script)], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def tokenizer(folder: Path) -> Path:
    """Leaves one in ``folder`` that has a byte for each token, and a chat template that takes what users say alone."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    library: Any = transformers  # its classes have half of their types
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: place for place, letter in enumerate(["<|end|>", *letters])}
    bytes_alone = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    library.PreTrainedTokenizerFast(
        tokenizer_object=bytes_alone, eos_token="<|end|>",
        chat_template="{% for one in messages %}{% if one.role != 'user' %}{{ raise_exception('only users') }}"
                      "{% endif %}{{ one.content }}{% endfor %}").save_pretrained(folder)
    return folder


def tiny(folder: Path) -> Path:
    """A causal model of two layers with random weights in FP32, which reads 512 tokens."""
    import torch
    import transformers

    torch.manual_seed(0)
    library: Any = transformers
    library.LlamaForCausalLM(library.LlamaConfig(
        vocab_size=257, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.3, bos_token_id=0, eos_token_id=0,
        tie_word_embeddings=False)).save_pretrained(folder)
    return tokenizer(folder)


def cut(source: Path, folder: Path, layers: int) -> Path:
    """A model of the first ``layers`` of ``source``, with its tokeniser: a draft that needs no training."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder)
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "num_hidden_layers": layers}))
    weights = load_file(source / "model.safetensors")
    kept = {name: weight for name, weight in weights.items()
            if not (found := re.match(r"model\.layers\.(\d+)\.", name)) or int(found[1]) < layers}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
