"""Where vLLM is: in a folder of its own, for one process, as its packages need another PyTorch than the builder's."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

from enginewright_builder.errors import UserError

PACKAGES_VARIABLE = "ENGINEWRIGHT_VLLM"


def packages() -> Path:
    """Raises :class:`UserError` ``VllmMissing``."""
    folder = os.environ.get(PACKAGES_VARIABLE, "")
    if folder and (Path(folder) / "vllm").is_dir():
        return Path(folder)
    raise UserError("VllmMissing", "there is no vLLM here, which language models are proven and served with",
                    field=PACKAGES_VARIABLE, value=folder,
                    remedy=f"let {PACKAGES_VARIABLE} name a folder with the packages of requirements/vllm.txt; "
                           "hack/dev/vllm.sh makes one and prints its path")


def version() -> str:
    """vLLM's, by its metadata; empty where it has none. Raises :class:`UserError` ``VllmMissing``."""
    found = metadata.distributions(name="vllm", path=[str(packages())])
    return next((one.version for one in found), "")
