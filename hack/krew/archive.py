"""A folder as .tar.gz, the same bytes each time."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

# Of uv's and pip's bookkeeping: they differ from machine to machine, and nothing reads them here.
LEFT_OUT = ("__pycache__", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", ".lock")


def pack(directory: Path) -> bytes:
    """Files in order, without owners, without times; executable or not is all that is kept of their modes."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for path in sorted(directory.rglob("*")):
            if not path.is_file() or set(path.relative_to(directory).parts) & set(LEFT_OUT):
                continue
            member = tarfile.TarInfo(path.relative_to(directory).as_posix())
            member.size = path.stat().st_size
            member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as content:
                archive.addfile(member, content)
    return packed.getvalue()
