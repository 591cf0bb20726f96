"""Finding this machine's mirror of Debian."""

from __future__ import annotations

from pathlib import Path

import pytest

from images import debian
from images.buildah import BuildError

MAIN = "http://mirror.example/debian"
SECURITY = "http://mirror.example/debian-security"
OTHER = "https://tools.example/apt"
EXPECTED = [f"deb {MAIN} bookworm main", f"deb {MAIN} bookworm-updates main"]
ONE_LINE = f"deb [arch=amd64 signed-by=/k.gpg] {MAIN} trixie main contrib\ndeb {OTHER} tools-bookworm main\n"
STANZAS = f"""Types: deb
URIs: {OTHER}
Suites: nodistro
Components: main

# A comment
Types: deb deb-src
URIs: {MAIN}
Suites: bookworm bookworm-updates
Components: main
Signed-By: /k.gpg

Types: deb
URIs: {SECURITY}
Suites: bookworm-security
Components: main
"""


@pytest.mark.parametrize(
    ("mirror", "files", "expected"),
    [
        ("", [ONE_LINE], EXPECTED),
        ("", [STANZAS], [*EXPECTED, f"deb {SECURITY} bookworm-security main"]),
        ("", [f"deb {SECURITY} stable-security main", ONE_LINE], [*EXPECTED, f"deb {SECURITY} bookworm-security main"]),
        (MAIN, [f"deb {OTHER} bookworm main"], EXPECTED),
    ],
    ids=["one-line", "stanzas", "two-files", "given"],
)
def test_sources_of_the_release(mirror: str, files: list[str], expected: list[str]) -> None:
    assert debian.source_entries(mirror, files) == expected


@pytest.mark.parametrize(
    "text",
    ["", f"# deb {MAIN} bookworm main", f"deb-src {MAIN} bookworm main", f"deb {OTHER} jammy main universe"],
    ids=["empty", "comment", "source-only", "another-distribution"],
)
def test_without_a_mirror_the_remedy_is_named(text: str) -> None:
    with pytest.raises(BuildError, match=r"set ENGINEWRIGHT_DEBIAN_MIRROR.*or ENGINEWRIGHT_BASE_IMAGE"):
        debian.source_entries("", [text])


def test_a_mirror_that_is_named_in_a_file_of_this_machine_is_looked_up(tmp_path: Path) -> None:
    listed = tmp_path / "debian.list"
    listed.write_text("https://mirror.example/debian\nhttps://other.example/debian\n")
    stanza = f"Types: deb\nURIs: mirror+file://{listed}\nSuites: bookworm bookworm-updates\nComponents: main\n"
    assert debian.source_entries("", [stanza])[0] == "deb https://mirror.example/debian bookworm main"
    with pytest.raises(BuildError, match="ENGINEWRIGHT_DEBIAN_MIRROR"):
        debian.source_entries("", [stanza.replace(str(listed), str(tmp_path / "none"))])
