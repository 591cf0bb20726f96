"""A folder as .tar.gz, the same bytes each time."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Collection
from fnmatch import fnmatch
from pathlib import Path

# Of uv's and pip's bookkeeping: they differ from machine to machine, and nothing reads them here.
LEFT_OUT = ("__pycache__", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", ".lock")


def pack(directory: Path, *, prefix: Path = Path(), left_out: Collection[str] = LEFT_OUT) -> bytes:
    """Files in order, below ``prefix``, without owners, without times; executable or not is all that is kept of their
    modes. A file or folder whose name matches a pattern of ``left_out`` is not packed."""
    packed = io.BytesIO()
    # Level 9 takes five times as long for 1 %.
    with (gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as stream,
          tarfile.open(fileobj=stream, mode="w") as archive):
        for path in sorted(directory.rglob("*")):
            name = path.relative_to(directory)
            if not path.is_file() or any(fnmatch(part, each) for part in name.parts for each in left_out):
                continue
            member = tarfile.TarInfo((prefix / name).as_posix())
            member.size = path.stat().st_size
            member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as content:
                archive.addfile(member, content)
    return packed.getvalue()
