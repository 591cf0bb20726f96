"""The tracked files of this repository, and when they were committed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


class SourceError(Exception):
    """The repository cannot be released as it is; the message says what to do."""


def export(root: Path, directory: Path) -> Path:
    """A copy of the tracked files, as they are now, with the same modes on every machine."""
    for name in _git(root, "ls-files", "-z").split("\0"):
        path = root / name
        if name and path.is_file():
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    return directory


def commit(root: Path, *, dirty: bool) -> str:
    """The commit that is released.

    Raises:
        SourceError: files differ from it, and ``dirty`` does not allow that.
    """
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed and not dirty:
        raise SourceError(f"{len(changed)} files differ from the last commit, such as {changed[0][3:]}: commit or "
                          "remove them, or try it out with DIRTY=1")
    return _git(root, "rev-parse", "HEAD").strip()


def epoch(root: Path) -> int:
    """Seconds since 1970: ``SOURCE_DATE_EPOCH``, or the time of the last commit.

    Raises:
        SourceError: ``SOURCE_DATE_EPOCH`` is no number.
    """
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if given and not given.isdigit():
        raise SourceError(f"SOURCE_DATE_EPOCH={given} is no number of seconds; write digits, or unset it")
    return int(given or _git(root, "log", "-1", "--format=%ct"))


def _git(root: Path, *arguments: str) -> str:
    try:
        command = ["git", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SourceError(f"{root} is no clone that git can read: {error}") from error
    return done.stdout
