"""A small model that answers texts of one length alone, and whose export fails wherever a size is free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LENGTH = 16


def nystromformer(folder: Path) -> Path:
    """Two classes, with weights of chance. Its configuration allows 64 tokens."""
    import torch
    import transformers

    torch.manual_seed(0)
    library: Any = transformers  # its classes have half of their types
    library.NystromformerForSequenceClassification(library.NystromformerConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=4 * LENGTH, segment_means_seq_len=LENGTH, num_landmarks=4,
        initializer_range=0.4)).save_pretrained(folder)
    return folder
