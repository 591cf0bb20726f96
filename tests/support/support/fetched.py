"""What a source brings."""

from __future__ import annotations

from pathlib import Path

from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.fetching import fetch


def got(uri: str, tmp_path: Path, **fields: object) -> tuple[Path, str]:
    return fetch(uri, FetchContext(mounts={}, scratch=tmp_path / "scratch", **fields))  # type: ignore[arg-type]


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
