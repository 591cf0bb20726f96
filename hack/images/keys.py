"""Content keys: what a stage is made of, as a digest. The same inputs have the same key on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

from images.containerfile import Stage

KEY_LENGTH = 12
# The same as in Containerfile.dockerignore.
IGNORED = ("__pycache__", "*.pyc")


class MissingInputError(FileNotFoundError):
    """A stage copies what the build context does not hold."""


def stage_key(name: str, stages: Mapping[str, Stage], context: Path, arguments: Mapping[str, str]) -> str:
    """Digest (hex) over the stage, what it copies, the arguments it declares, and every stage that it builds on.

    A parent that is no stage (an image) counts by its name.

    Raises:
        MissingInputError: a copied path is not in ``context``.
    """
    if name not in stages:
        return _digest(["image", name])
    stage = stages[name]
    below = [stage_key(other, stages, context, arguments) for other in (stage.parent, *stage.stages)]
    inputs = {path: files_digest(context / path) for path in stage.inputs}
    given = {argument: arguments.get(argument, "") for argument in stage.arguments}
    return _digest([below, stage.instructions, inputs, given])


def files_digest(path: Path) -> str:
    """Digest (hex) over the names and contents below ``path``; modes and times do not count, images set their own."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    if not path.is_dir():
        raise MissingInputError(f"{path} is copied into an image and is not there")
    files = (file for file in sorted(path.rglob("*")) if file.is_file() and not _ignored(file.relative_to(path)))
    return _digest([[str(file.relative_to(path)), hashlib.sha256(file.read_bytes()).hexdigest()] for file in files])


def _ignored(path: Path) -> bool:
    return any(fnmatch(part, pattern) for part in path.parts for pattern in IGNORED)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def text_key(text: str) -> str:
    """A short key of ``text`` alone."""
    return _digest(text)[:KEY_LENGTH]
