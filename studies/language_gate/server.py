"""A real vLLM that takes other weights while it runs, so that a trial does not start a server of its own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from safetensors.torch import load_file, save_file

from enginewright_builder.errors import TransientError
from enginewright_builder.generate.server import VllmServer

RELOAD_SECONDS = 120.0
_WEIGHTS = "model.safetensors"


class Reloading(VllmServer):
    """By vLLM's own calls for reinforcement learning, which it offers in its development mode alone."""

    def variables(self) -> dict[str, str]:
        return {**super().variables(), "VLLM_SERVER_DEV_MODE": "1"}

    async def take(self, folder: Path) -> None:
        """The weights in ``folder`` from now on. Raises :class:`TransientError` ``ServerUnavailable``."""
        asked: dict[str, Any] = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        try:
            async with httpx.AsyncClient(base_url=self.http_url, trust_env=False, timeout=RELOAD_SECONDS) as http:
                (await http.post("/collective_rpc", json=asked)).raise_for_status()
                (await http.post("/reset_prefix_cache")).raise_for_status()
        except httpx.HTTPError as error:
            raise TransientError("ServerUnavailable", f"vLLM did not take the weights in {folder}: {error!r}",
                                 remedy=self.last_words()) from error


def weights(model: Path) -> dict[str, Any]:
    """Tensors by name, of a folder that has them in one file."""
    return load_file(model / _WEIGHTS)


def variant(model: Path, folder: Path, tensors: Mapping[str, Any]) -> Path:
    """``folder`` as a copy of ``model`` with other ``tensors``; what was there before goes."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / _WEIGHTS,
              metadata={"format": "pt"})
    return folder
