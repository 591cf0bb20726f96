"""The Debian that the images start from, made with this machine's own mirror: no container registry is needed."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from cluster.steps import step
from images.buildah import Buildah, BuildError

RELEASE = "bookworm"
MIRROR_VARIABLE = "ENGINEWRIGHT_DEBIAN_MIRROR"
SOURCES = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d"))
# Manuals and translations never reach the image; licences do. The setting stays in the image, for later installations.
OPTIONS = (
    "--variant=minbase",
    "--include=ca-certificates",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/lintian/*",
)
RECIPE = f"{RELEASE} {' '.join(OPTIONS)}"
_DEBIAN_SUITE = re.compile(r"^(?:bullseye|bookworm|trixie|forky|sid|oldstable|stable|testing|unstable)(-[a-z]+)?/?$")


def ensure(buildah: Buildah, reference: str) -> None:
    """Make the image ``reference`` unless buildah has it.

    Raises:
        BuildError: no mirror is known, or mmdebstrap fails.
    """
    if buildah.has(reference):
        return
    with step(f"Debian {RELEASE}, minimal"), tempfile.TemporaryDirectory(dir=buildah.scratch) as directory:
        context = Path(directory)
        entries = source_entries(os.environ.get(MIRROR_VARIABLE, ""), _source_files())
        target = str(context / "debian.tar")
        command = ("mmdebstrap", "--mode=root", "--format=tar", *OPTIONS, RELEASE, target, *entries)
        environment = os.environ | {"SOURCE_DATE_EPOCH": "0", "TMPDIR": str(buildah.scratch)}
        log = buildah.log("debian")
        with log.open("wb") as stream:
            done = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, env=environment, check=False)
        if done.returncode != 0:
            raise BuildError("mmdebstrap could not make a Debian", log)
        (context / "Containerfile").write_text('FROM scratch\nADD debian.tar /\nCMD ["/bin/sh"]\n')
        buildah.build(context, context / "Containerfile", reference, log)


def source_entries(mirror: str, files: Iterable[str]) -> list[str]:
    """Lines of a sources.list for :data:`RELEASE`.

    Args:
        mirror: address to use instead of what ``files`` name; empty for none.
        files: texts of this machine's apt sources, in either format.

    Raises:
        BuildError: neither names a mirror of Debian.
    """
    main, security = mirror, ""
    for written, suite in _repositories(files) if not mirror else ():
        address = _plain_address(written)
        if suite.rstrip("/").endswith("-security"):
            security = security or address
        elif _DEBIAN_SUITE.match(suite):
            main = main or address
    if not main:
        raise BuildError(
            f"apt names no mirror of Debian here: set {MIRROR_VARIABLE} to the address of one, "
            "or ENGINEWRIGHT_BASE_IMAGE to a Debian 12 image that buildah can pull"
        )
    entries = [f"deb {main} {RELEASE} main", f"deb {main} {RELEASE}-updates main"]
    return entries + ([f"deb {security} {RELEASE}-security main"] if security else [])


def _plain_address(address: str) -> str:
    """Debian's cloud images name their mirror in a file of this machine (``mirror+file:``), which no image has."""
    if not address.startswith("mirror+file:"):
        return address
    path = Path("/" + address.removeprefix("mirror+file:").lstrip("/"))
    listed = path.read_text().split() if path.is_file() else []
    return listed[0] if listed else ""


def _source_files() -> Iterator[str]:
    for path in SOURCES:
        files = sorted(path.glob("*")) if path.is_dir() else [path]
        yield from (file.read_text() for file in files if file.suffix in (".list", ".sources") and file.is_file())


def _repositories(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Address and suite of each repository that has a component ``main``."""
    for text in files:
        for line in text.splitlines():
            if match := re.match(r"deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)", line):
                yield from ((match[1], match[2]) for component in match[3].split() if component == "main")
        for stanza in re.split(r"\n\s*\n", text):
            fields = dict(re.findall(r"^(URIs|Suites|Components|Types):\s*(.*)$", stanza, re.MULTILINE))
            if "deb" in fields.get("Types", "").split() and "main" in fields.get("Components", "").split():
                yield from (
                    (address, suite)
                    for address in fields.get("URIs", "").split()
                    for suite in fields.get("Suites", "").split()
                )
