"""The plugin's program on Windows, where a script has no first line that the system reads: a launcher that distlib
brings, and after it an archive that Python runs."""

from __future__ import annotations

import io
import zipfile
from importlib import metadata
from pathlib import Path

PROGRAM = "kubectl-optimisedmodel.exe"
LAUNCHERS = {"amd64": "t64.exe", "arm64": "t64-arm.exe"}
# The launcher looks for python.exe on the path.
_SHEBANG = b"#!/usr/bin/env python\r\n"
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can state


def program(arch: str) -> bytes:
    """Raises ``FileNotFoundError`` when distlib brings no launcher."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        main = (Path(__file__).parent / "windows_main.py").read_bytes()
        archive.writestr(zipfile.ZipInfo("__main__.py", _TIME), main)
    return launcher(LAUNCHERS[arch]) + _SHEBANG + packed.getvalue()


def launcher(name: str) -> bytes:
    for file in metadata.files("distlib") or ():
        if file.name == name:
            return Path(str(file.locate())).read_bytes()
    raise FileNotFoundError(f"distlib of this environment has no {name}")


def pack_zip(directory: Path, left_out: frozenset[str]) -> bytes:
    """Files in order, without times."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(directory.rglob("*")):
            name = path.relative_to(directory)
            if path.is_file() and not set(name.parts) & left_out:
                entry = zipfile.ZipInfo(name.as_posix(), _TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())
    return packed.getvalue()
