"""The release's version, which stands in several files: which ones, and how all of them get another one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Semantic, as Helm and krew want it.
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")


@dataclass(frozen=True)
class Place:
    """``pattern`` finds the version as its only group, as often as ``path`` has it."""

    path: str
    pattern: str


PLACES = (
    Place("pyproject.toml", r'^version = "(.+)"$'),
    Place("operator/enginewright/__init__.py", r'^__version__ = "(.+)"$'),
    Place("charts/enginewright/Chart.yaml", r"^(?:version|appVersion): (.+)$"),
    Place("examples/gitops/platform/enginewright/kustomization.yaml", r"newTag: ([^ }]+)"),
    Place("examples/gitops/platform/enginewright/config.yaml", r"^  (?:operator|builder|server): \S+:(\S+)$"),
    Place("docs/install.md", r"enginewright-(\d+\.\d+\.\S+?)(?:\.tgz|-digests\.yaml)"),
    Place("docs/how-to/verify-a-release.md", r"enginewright-(?:operator-)?(\d+\.\d+\.\S+?)(?:\.tgz|\.oci\.tar)"),
)


def found(root: Path = ROOT) -> dict[str, list[str]]:
    """The versions that each file of :data:`PLACES` has."""
    return {place.path: re.findall(place.pattern, (root / place.path).read_text(), re.MULTILINE) for place in PLACES}


def current(root: Path = ROOT) -> str:
    """The version of all places.

    Raises:
        ValueError: they differ, or a file has none.
    """
    by_path = found(root)
    versions = {version for each in by_path.values() for version in each}
    if len(versions) != 1 or not all(by_path.values()):
        raise ValueError(f"files name different versions: {by_path}; run: make version TO=X.Y.Z")
    return versions.pop()


def change(version: str, root: Path = ROOT) -> None:
    """Write ``version`` into all places; what is generated from them is left to ``make generate``.

    Raises:
        ValueError: it is no semantic version.
    """
    if not VERSION.fullmatch(version):
        raise ValueError(f"TO={version} is no semantic version; write X.Y.Z or X.Y.Z-rc.1")
    for place in PLACES:
        path = root / place.path
        text = path.read_text()

        def with_it(match: re.Match[str]) -> str:
            begin, end = match.start(1) - match.start(), match.end(1) - match.start()
            return match[0][:begin] + version + match[0][end:]

        path.write_text(re.sub(place.pattern, with_it, text, flags=re.MULTILINE))
