"""The plugin's archives, one for each platform."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from krew import windows
from krew.archive import LEFT_OUT, pack
from krew.manifest import LAUNCHER, Archive, Platform

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
UV = ROOT / "build" / "tools" / "bin" / "uv"


def archive(platform: Platform, version: str, source: Path = ROOT) -> Archive:
    """``source`` is a folder with the repository's files. Raises ``subprocess.CalledProcessError`` when a package of
    the lock has no wheel for the platform."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        fill(folder, platform, source)
        content = windows.pack_zip(folder, frozenset(LEFT_OUT)) if platform.os == "windows" else pack(folder)
    return Archive(platform=platform, version=version, content=content)


def fill(directory: Path, platform: Platform, source: Path) -> None:
    """The launcher, the licence, our two packages, and what the lock says that the operator needs, for a platform."""
    if platform.os == "windows":
        (directory / windows.PROGRAM).write_bytes(windows.program(platform.arch))
    else:
        shutil.copy(HERE / LAUNCHER, directory)
    shutil.copy(source / "LICENSE", directory)
    library = directory / "lib"
    subprocess.run([
        UV, "pip", "install", "--quiet", "--target", library, "--python", sys.executable, "--python-version", "3.11",
        "--python-platform", platform.wheels, "--only-binary", ":all:", "--no-deps", "--require-hashes",
        "-r", source / "requirements" / "operator.txt",
    ], check=True, timeout=600)
    # Programs that packages bring: their first lines name this machine's Python, and nothing here starts them.
    for name in ("bin", "Scripts"):
        shutil.rmtree(library / name, ignore_errors=True)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source / "operator" / "enginewright", library / "enginewright", ignore=ignore)
    builder = source / "builders" / "enginewright_builder"
    shutil.copytree(builder / "contract", library / "enginewright_builder" / "contract", ignore=ignore)
    shutil.copy(builder / "__init__.py", library / "enginewright_builder")
