"""Names in a source's folder that do not belong to the source, and names by which one of its files may lead to others.

A digest has everything in a folder but the kubelet's own names and a ``lost+found`` that may not be listed. So nothing
that a loader follows may lead there, nor into hidden folders, which signatures leave out.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

# k8s.io/kubernetes/pkg/volume/util/atomic_writer.go: the folder of one version, and links to the present one, by which
# each file has its plain name as well.
_VERSION = re.compile(r"\.\.\d{4}(?:_\d{2}){5}\.\d{1,20}", re.ASCII)
_LINKS = ("..data", "..data_tmp")
# Of a file system, at its top. Often root's alone.
LOST_FOUND = "lost+found"


def is_kubelets(path: Path) -> bool:
    """Whether the kubelet keeps one version of a projected volume in ``path``, or links to it there."""
    if path.name in _LINKS:
        return path.is_symlink() and bool(_VERSION.fullmatch(str(path.readlink())))
    return bool(_VERSION.fullmatch(path.name)) and path.is_dir() and not path.is_symlink()


def escapes_folder(name: str) -> bool:
    """Whether a relative name in a file of the source leads out of its folder, or to what is no part of it."""
    parts = PurePosixPath(name).parts
    return "\0" in name or any(part.startswith((".", "/")) or part == LOST_FOUND for part in parts)
