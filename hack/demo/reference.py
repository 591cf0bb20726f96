"""``python -m demo.reference``: the unoptimised PyTorch model's answers to texts on standard input, both as JSON.

In a process of its own: PyTorch takes seconds to import, beside everything else, and another one to leave.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from demo.inference import Embeddings, model_directory
from demo.shell import run

MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def reference_embeddings(texts: list[str]) -> Embeddings:
    """float32[texts, 384], normalised. Raises :class:`StepError`."""
    output = run(sys.executable, "-m", "demo.reference", stdin=json.dumps(texts).encode())
    return np.array(json.loads(output.splitlines()[-1]), np.float32)


def main() -> None:
    print(json.dumps(_embeddings(json.load(sys.stdin)).tolist()))


def _embeddings(texts: list[str]) -> Embeddings:
    """What the model's authors prescribe: mean of the token vectors under the mask, normalised."""
    import torch
    import transformers
    from transformers import AutoModel

    transformers.utils.logging.disable_progress_bar()
    model = AutoModel.from_pretrained(model_directory()).eval()
    tokens = {name: torch.from_numpy(value) for name, value in _tokenise(texts).items()}
    with torch.inference_mode():
        hidden = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1).float()
    pooled = (hidden * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(pooled, dim=1).numpy()


def _tokenise(texts: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """``{"input_ids": int64[texts, tokens], …}``, padded to the longest."""
    from transformers import AutoTokenizer

    encoded = AutoTokenizer.from_pretrained(model_directory())(texts, padding=True, return_tensors="np")
    return {name: encoded[name].astype(np.int64) for name in MODEL_INPUTS if name in encoded}


if __name__ == "__main__":
    main()
