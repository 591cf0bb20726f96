"""A language model that costs two cores next to nothing, with a real tokeniser, and what it is asked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from demo import language_model

CONTEXT = 1024
SOURCE, ASKED = "tiny", "asked.jsonl"
# As many tokens as an answer has: most are short; one in twenty takes longer than a replica that goes is kept from
# connections (``drainSeconds``), so that it is under way when its server is asked to end.
SHORT, LONGER, LONG = 16, 32, 600
_TOKENISER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def write(directory: Path) -> dict[str, Path]:
    """Leaves model and prompts in ``directory``, and returns them by name."""
    directory.mkdir(parents=True, exist_ok=True)
    asked = directory / ASKED
    lengths = (*[SHORT] * 10, *[LONGER] * 9, LONG)
    asked.write_text("".join(
        json.dumps({"messages": [{"role": "user", "content": f"Write about {topic}."}], "max_tokens": length}) + "\n"
        for topic, length in zip(language_model.TOPICS, lengths, strict=True)))
    return {SOURCE: _model(directory / SOURCE), "prompts": language_model.prompts(directory / "prompts"), ASKED: asked}


def spec(variant: int) -> dict[str, Any]:
    """The part of the spec that is the model's. Each variant asks for another context, and so for an engine of its
    own."""
    return {
        "task": "generate",
        "source": {"uri": f"pvc://models/{SOURCE}"},
        "engine": {"contextTokens": CONTEXT + variant, "buildBudgetSeconds": 240,
                   "resources": {"requests": {"cpu": "200m", "memory": "2Gi"},
                                 "limits": {"cpu": "1400m", "memory": "8Gi"}}},
        "accuracy": {"maxLoss": 0.15, "evaluation": {"uri": "pvc://models/prompts/prompts.jsonl"}},
        "serving": {"resources": {"requests": {"cpu": "200m", "memory": "2Gi"},
                                  "limits": {"cpu": "1400m", "memory": "5Gi"}}},
    }


def _model(folder: Path) -> Path:
    """Two layers of random weights, with the tokeniser of SmolLM2."""
    import torch
    import transformers

    shutil.rmtree(folder, ignore_errors=True)
    original = language_model.source()
    vocabulary = json.loads((original / "config.json").read_text())["vocab_size"]
    torch.manual_seed(0)
    library: Any = transformers
    library.LlamaForCausalLM(library.LlamaConfig(
        vocab_size=vocabulary, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=2 * CONTEXT, initializer_range=0.3,
        tie_word_embeddings=False)).save_pretrained(folder)
    for name in _TOKENISER:
        shutil.copy(original / name, folder / name)
    return folder
