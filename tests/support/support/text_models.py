"""A small model of texts with a real tokenizer, as its authors would leave it in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIMIT = 24
WORDS = ("the", "a", "of", "to", "nurse", "engine", "waited", "for", "rain", "##s", "##ing", "in", "city", "z", "##u",
         "##rich", "key", "lost", "was", "42", ".", ",", "?")


def classifier(folder: Path, **settings: Any) -> Path:
    """BERT with random weights and five classes, for at most :data:`LIMIT` tokens; ``settings`` are its tokenizer's."""
    import torch
    import transformers

    torch.manual_seed(0)
    library: Any = transformers  # its classes have half of their types
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    library.BertForSequenceClassification(library.BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=LIMIT, num_labels=5, initializer_range=0.4)).save_pretrained(folder)
    tokenizer = library.BertTokenizer(vocab={word: place for place, word in enumerate(vocabulary)},
                                      model_max_length=LIMIT, **settings)
    tokenizer.save_pretrained(folder)
    return folder


def answers(folder: Path, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Any:
    """As its authors use it, a text at a time."""
    import torch
    import transformers

    library: Any = transformers
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    model = library.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    sides = [[text] for text in texts], [[text] for text in pairs or ()]
    with torch.no_grad():
        return torch.cat([model(**tokenizer(*side, truncation=True, max_length=LIMIT, return_tensors="pt")).logits
                          for side in (zip(*sides, strict=True) if pairs else zip(sides[0]))]).numpy()
