"""The manifest that krew reads."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

LAUNCHER = "kubectl-optimisedmodel"


@dataclass(frozen=True)
class Platform:
    """``os`` and ``arch`` as Go names them; ``wheels`` as uv does."""

    os: str
    arch: str
    wheels: str


PLATFORMS = (
    Platform("linux", "amd64", "x86_64-manylinux_2_28"),
    Platform("linux", "arm64", "aarch64-manylinux_2_28"),
    Platform("darwin", "amd64", "x86_64-apple-darwin"),
    Platform("darwin", "arm64", "aarch64-apple-darwin"),
    Platform("windows", "amd64", "x86_64-pc-windows-msvc"),
)


@dataclass(frozen=True, kw_only=True)
class Archive:
    platform: Platform
    version: str
    content: bytes

    @property
    def name(self) -> str:
        end = "zip" if self.platform.os == "windows" else "tar.gz"
        return f"{LAUNCHER}_v{self.version}_{self.platform.os}_{self.platform.arch}.{end}"

    @property
    def program(self) -> str:
        return f"{LAUNCHER}.exe" if self.platform.os == "windows" else LAUNCHER


def render(template: str, archives: Iterable[Archive], url: str, homepage: str) -> str:
    """The template, filled in. Raises KeyError for an unknown placeholder, ValueError without archives."""
    made = list(archives)
    (version,) = {archive.version for archive in made}
    text = string.Template(template).substitute(version=f"v{version}", homepage=homepage)
    document: dict[str, Any] = yaml.safe_load(text)
    document["spec"]["platforms"] = [_platform(archive, url) for archive in made]
    return yaml.safe_dump(document, sort_keys=False, width=120)


def _platform(archive: Archive, url: str) -> dict[str, Any]:
    return {
        "selector": {"matchLabels": {"os": archive.platform.os, "arch": archive.platform.arch}},
        "uri": f"{url.rstrip('/')}/{archive.name}",
        "sha256": hashlib.sha256(archive.content).hexdigest(),
        "bin": archive.program,
    }
