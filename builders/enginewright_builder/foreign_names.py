"""Names that others gave, which become files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

# Of one part of a path, in bytes: what usual file systems have, less what is added to the name of an unfinished file.
LONGEST_NAME = 250
# Of a whole path, in bytes: Linux's PATH_MAX.
LONGEST_PATH = 4096
# What looks at each folder above a file takes time and memory by the square of them.
MOST_PARTS = 256


def check_length(name: str) -> None:
    """It may be any text, also one that no bytes stand for. Raises ``ValueError``."""
    if len(name) > LONGEST_PATH or len(name.encode(errors="surrogatepass")) > LONGEST_PATH:
        raise ValueError(f"{name[:40]!r}… is a name of more than {LONGEST_PATH:,} bytes")
    if len(PurePosixPath(name).parts) > MOST_PARTS:
        raise ValueError(f"{name[:40]!r}… has more than {MOST_PARTS} parts")


def check_names(names: Iterable[str]) -> None:
    """They are any text, and not all make a folder. Raises ``ValueError``."""
    paths = set()
    for name in names:
        check_length(name)
        paths.add(PurePosixPath(name))
    for path in paths:
        if path.is_absolute() or {"..", "."} & set(path.parts) or "\0" in str(path):
            raise ValueError(f"{str(path)!r} leads out of its folder")
        if any(len(part.encode()) > LONGEST_NAME for part in path.parts):
            raise ValueError(f"{str(path)[:40]!r}… has a name of more than {LONGEST_NAME} bytes")
        if clash := next((folder for folder in path.parents if folder in paths), None):
            raise ValueError(f"{clash} is both a file and a folder")
