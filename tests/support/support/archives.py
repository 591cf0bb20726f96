"""Image archives under another name."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

# Where an archive has the names of its images; layers and settings lie in blobs.
NAMED_IN = ("index.json", "manifest.json")


def renamed(archive: Path, old: str, new: str, target: Path) -> Path:
    """A copy of ``archive`` at ``target`` whose image ``old`` is called ``new``: the same image for a node to load."""
    with tarfile.open(archive) as source, tarfile.open(target, "w") as copy:
        for member in source:
            content = source.extractfile(member)
            data = content.read() if content else b""
            if member.name in NAMED_IN:
                data = data.replace(old.encode(), new.encode())
                member.size = len(data)
            copy.addfile(member, io.BytesIO(data))
    return target
