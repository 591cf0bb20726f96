"""Which packages a tree of files has, from what dpkg and Python's installers leave in it."""

from __future__ import annotations

import email
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import quote

DPKG = "var/lib/dpkg/status"
METADATA = re.compile(r"(?:^|/)[^/]+\.dist-info/METADATA$")
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_HEADER_BYTES = 64 * 1024


@dataclass(frozen=True, order=True)
class Package:
    """``kind`` as in package URLs: ``deb`` or ``pypi``; ``licence`` an SPDX expression, empty where none is stated."""

    kind: str
    name: str
    version: str
    licence: str = ""

    @property
    def purl(self) -> str:
        space = "debian/" if self.kind == "deb" else ""
        name = self.name if self.kind == "deb" else re.sub(r"[-_.]+", "-", self.name).lower()
        return f"pkg:{self.kind}/{space}{quote(name)}@{quote(self.version)}"


@dataclass
class Contents:
    """What layers, one upon the other, leave of packages."""

    _found: dict[str, list[Package]] = field(default_factory=dict)

    def packages(self) -> list[Package]:
        return sorted({package for each in self._found.values() for package in each})

    @staticmethod
    def wants(path: str) -> bool:
        return path == DPKG or bool(METADATA.search(path))

    def add(self, path: str, content: bytes) -> None:
        """A file that :meth:`wants` asks for."""
        self._found[path] = debian(content.decode()) if path == DPKG else [python(content)]

    def take_away(self, path: str) -> None:
        """A file or folder that a layer hides: an OCI whiteout. Any other path changes nothing."""
        where = PurePosixPath(path)
        if where.name == _OPAQUE:
            self._drop(str(where.parent))
        elif where.name.startswith(_WHITEOUT):
            self._drop(str(where.parent / where.name.removeprefix(_WHITEOUT)))

    def _drop(self, gone: str) -> None:
        self._found = {path: found for path, found in self._found.items()
                       if path != gone and not path.startswith(f"{gone}/")}


def debian(status: str) -> list[Package]:
    """Installed packages of dpkg's status file."""
    found = []
    for stanza in re.split(r"\n\s*\n", status):
        fields = dict(re.findall(r"^(Package|Status|Version): (.*)$", stanza, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            found.append(Package("deb", fields["Package"], fields["Version"]))
    return found


def python(metadata: bytes) -> Package:
    """Of a wheel's METADATA. Raises KeyError when it has no name or version."""
    headers = email.message_from_bytes(metadata[:_HEADER_BYTES])
    return Package("pypi", headers["Name"] or _missing("Name"), headers["Version"] or _missing("Version"),
                   headers["License-Expression"] or "")


def _missing(header: str) -> str:
    raise KeyError(f"METADATA without {header}")
