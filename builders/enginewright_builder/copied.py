"""Modules of the builder, copied so that a Python without the builder's packages runs them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import enginewright_builder


def copy_modules(folder: Path, modules: Iterable[ModuleType]) -> Path:
    """Into the package ``enginewright_builder`` in ``folder``, whose path it returns. A package's own file alone is
    copied, not what is in it. Raises :class:`OSError`."""
    root = Path(str(enginewright_builder.__file__)).parent
    for module in (enginewright_builder, *modules):
        source = Path(str(module.__file__))
        target = folder / root.name / source.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return folder / root.name
