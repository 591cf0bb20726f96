"""A PyTorch archive as PyTorch itself reads it, for the checks of ``sources/``: see ``sources/torch_archive.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from enginewright_builder.errors import first_line
from enginewright_builder.sources.torch_archive import TorchArchive


def check_as_torch_reads(path: Path, check: Callable[[TorchArchive], None]) -> None:
    """Raises what ``check`` does, and :class:`UserError` ``SourceCorrupt`` for a member that cannot be read.

    What PyTorch's reader does not take at all is not checked: ``torch.export.load`` then reads it as Python does,
    ``torch.jit.load`` refuses it."""
    try:
        reader = torch._C.PyTorchFileReader(str(path))
        # PyTorch 2.11, which the images for GPUs have, tells no size.
        size = getattr(reader, "get_record_size", lambda name: len(reader.get_record(name)))
        archive = TorchArchive(path, reader.get_all_records(), reader.get_record, size)
    except RuntimeError:
        return
    try:
        check(archive)
    except RuntimeError as error:
        raise archive.corrupt(first_line(error)) from error
