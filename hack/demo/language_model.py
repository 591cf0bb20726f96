"""SmolLM2, the prompts it is judged by, a copy that is broken on purpose, and a question by OpenAI's own client."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from demo import volumes
from demo.shell import ROOT, Kube, run

LOAD = "enginewright_builder.generate"
TOPICS = ("the sea", "bread", "a river", "winter", "music", "the moon", "glass", "a bridge", "salt", "paper", "iron",
          "a garden", "sleep", "maps", "bees", "rain", "clocks", "a harbour", "wool", "light")
MAX_TOKENS = 8
# What the broken copy's layer is multiplied by, and which layer.
FACTOR, WEIGHTS = 4.0, "model.layers.10.mlp.down_proj.weight"
_ASK = """
import sys
import openai

url, model, question = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key="none", timeout=120.0, max_retries=0)
messages = [{"role": "user", "content": question}]
stream = client.chat.completions.create(model=model, messages=messages, max_tokens=32, temperature=0.0, stream=True)
for part in stream:
    print(part.choices[0].delta.content or "", end="", flush=True)
"""


def source() -> Path:
    """A Hugging Face folder in BF16, made once and kept in the cache."""
    return Path(run(ROOT / "hack" / "dev" / "smollm2.sh", quiet=False, timeout=900).strip())


def prompts(folder: Path) -> Path:
    """``folder`` with ``prompts.jsonl``: one question for each topic."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"messages": [{"role": "user", "content": f"Write one sentence about {topic}."}],
                         "max_tokens": MAX_TOKENS}) for topic in TOPICS)
    (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def broken(model: Path, folder: Path) -> Path:
    """A copy of ``model`` as a faulty quantisation leaves one: the scale of one layer's weights is wrong."""
    from safetensors.torch import load_file, save_file

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, folder)
    (file,) = [one for one in folder.glob("*.safetensors") if WEIGHTS in load_file(one)]
    tensors = load_file(file)
    tensors[WEIGHTS] = tensors[WEIGHTS] * FACTOR
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


def asked(kube: Kube, namespace: str, image: str, model: str, question: str) -> str:
    """The answer that OpenAI's Python client streams, in a pod: ``image`` is vLLM's, which has that client. Raises
    :class:`StepError`."""
    url = f"http://{model}.{namespace}.svc:8000/v1"
    with volumes.mounted(kube, namespace, ("models",), image) as pod:
        return kube("exec", "-n", namespace, pod, "--", "python3", "-c", _ASK, url, model, question, timeout=180)
