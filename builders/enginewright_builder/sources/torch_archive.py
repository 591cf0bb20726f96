"""PyTorch's archives (``.pt2`` and TorchScript), as something that can be looked through before PyTorch opens it.

There are two readers of the same file: Python's, here, which the resolve step has, and PyTorch's own (in C++), which
``models/torch_records.py`` has. They need not see the same members in one file: PyTorch's compares names without case,
and trusts other offsets. So what is loaded is checked through both, by the same checks.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginewright_builder.errors import UserError
from enginewright_builder.foreign_json import parsed

_FIELD = "spec.source.uri"
# Of the text of one member, in bytes: that of the largest models' graphs is a tenth of it.
MOST_TEXT = 256 << 20


@dataclass(frozen=True)
class TorchArchive:
    """``names`` are those of the members without the folder that PyTorch puts around all of them. ``read`` gives the
    bytes of one, and ``size`` how many there are."""

    path: Path
    names: Sequence[str]
    read: Callable[[str], bytes]
    size: Callable[[str], int]

    def text(self, name: str) -> str:
        """Raises :class:`UserError` ``SourceCorrupt`` for what is no text, or too long."""
        if self.size(name) > MOST_TEXT:
            raise self.corrupt(f"{name[:100]} is longer than {MOST_TEXT >> 20} MiB")
        try:
            return self.read(name).decode()
        except UnicodeDecodeError as error:
            raise self.corrupt(f"{name[:100]} is no text: {error}") from error

    def json(self, name: str) -> Any:
        """Raises :class:`UserError` ``SourceCorrupt``."""
        try:
            return parsed(self.text(name))
        except ValueError as error:
            raise self.corrupt(f"{name[:100]} is no JSON: {error}") from error

    def check_names(self) -> None:
        """One name, one member, for readers that compare names without case, too. Raises ``SourceCorrupt``."""
        if len({name.lower() for name in self.names}) != len(self.names):
            raise self.corrupt("a member appears twice")

    def corrupt(self, what: str) -> UserError:
        return UserError("SourceCorrupt", f"{self.path.name} is no whole archive of PyTorch: {what}", field=_FIELD,
                         value=self.path, remedy="copy the file again and state its digest in spec.source.digest")

    def refuse(self, what: str) -> UserError:
        return UserError("PickleRefused", f"{self.path.name} could run code when it is opened: {what}", field=_FIELD,
                         value=self.path, remedy="export the model from plain PyTorch operators, without custom "
                                                 "objects, or give ONNX")


@contextmanager
def opened(path: Path) -> Iterator[TorchArchive]:
    """As Python reads it, all members whole. Raises :class:`UserError` ``SourceCorrupt``."""
    broken = TorchArchive(path, (), lambda _: b"", lambda _: 0)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > path.stat().st_size * _RATIO:
                raise broken.corrupt("its members promise more bytes than the file can have")
            if damaged := archive.testzip():
                raise broken.corrupt(f"member {damaged[:100]} fails its checksum")
            names = without_folder([member.filename for member in members])
            whole = dict(zip(names, members, strict=True))
            yield TorchArchive(path, names, lambda name: archive.read(whole[name]), lambda name: whole[name].file_size)
    except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise broken.corrupt(str(error)) from error


# PyTorch compresses no weights, but TorchScript's code, which is text: four to one at most.
_RATIO = 16


def without_folder(names: Sequence[str]) -> list[str]:
    """Names without the one folder that all are in, if all are in one."""
    roots = {name.partition("/")[0] for name in names}
    wrapped = len(roots) == 1 and all("/" in name for name in names)
    return [name.partition("/")[2] if wrapped else name for name in names]
