"""Archives of TorchServe, as torch-model-archiver 0.12.0 writes them: all files side by side, and its manifest."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

HANDLER = b"class Handler:\n    raise SystemExit('it ran')\n"


def archived(weights: Callable[[Path], Path], **model: str) -> Callable[[Path], Path]:
    """A file of ``weights`` and a handler in Python; ``model`` says more of the manifest's model."""

    def write(folder: Path) -> Path:
        file = weights(folder)
        return write_mar(folder / "model.mar", {file.name: file.read_bytes(), "handler.py": HANDLER},
                         serializedFile=file.name, handler="handler.py", **model)

    return write


def write_mar(path: Path, members: dict[str, bytes], **model: object) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps({
            "createdOn": "26/11/2026 21:24:38", "runtime": "python",
            "model": {"modelName": "m", "modelVersion": "1.0", **model}, "archiverVersion": "0.12.0"}))
    return path


def pickled(folder: Path) -> Path:
    """A state dict, as ``torch.save`` writes it."""
    import torch

    torch.save(torch.nn.Linear(16, 8).state_dict(), folder / "model.pth")
    return folder / "model.pth"
