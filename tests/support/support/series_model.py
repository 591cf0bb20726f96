"""A small forecaster that PyTorch cannot export: its masks are of another shape while it is traced."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def autoformer(folder: Path) -> Path:
    """Of weights of chance. It takes 14 values, with two features of each time."""
    import torch
    import transformers

    torch.manual_seed(0)
    library: Any = transformers  # its classes have half of their types
    library.AutoformerForPrediction(library.AutoformerConfig(
        prediction_length=4, context_length=12, d_model=16, lags_sequence=[1, 2], num_time_features=2, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32)).save_pretrained(folder)
    return folder
