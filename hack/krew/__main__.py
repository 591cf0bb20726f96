"""``make krew URL=https://…``: an archive for each platform, and the manifest that names them, into build/krew."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from enginewright import __version__
from krew.archive import pack
from krew.manifest import PLATFORMS, Archive, render

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
OUTPUT = ROOT / "build" / "krew"
UV = ROOT / "build" / "tools" / "bin" / "uv"


def main() -> int:
    parser = argparse.ArgumentParser(prog="krew", description=__doc__)
    parser.add_argument("--url", required=True, help="where the archives will be found: https://…, without their names")
    parser.add_argument("--homepage", help="default: --url")
    options = parser.parse_args()
    if not options.url.startswith("https://"):
        parser.error(f"--url: {options.url} is no address that krew takes; write https://…")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    made = []
    for platform in PLATFORMS:
        with tempfile.TemporaryDirectory() as directory:
            fill(Path(directory), platform.wheels)
            content = pack(Path(directory))
        archive = Archive(platform=platform, version=__version__, content=content)
        (OUTPUT / archive.name).write_bytes(content)
        print(f"{OUTPUT / archive.name}  {len(content) / 1e6:.0f} MB")
        made.append(archive)
    template = (HERE / "optimisedmodel.yaml").read_text()
    manifest = OUTPUT / "optimisedmodel.yaml"
    manifest.write_text(render(template, made, options.url, options.homepage or options.url))
    print(manifest)
    return 0


def fill(directory: Path, wheels: str) -> None:
    """The launcher, the licence, our two packages, and what the lock says that the operator needs, for a platform."""
    shutil.copy(HERE / "kubectl-optimisedmodel", directory)
    shutil.copy(ROOT / "LICENSE", directory)
    library = directory / "lib"
    subprocess.run([
        UV, "pip", "install", "--quiet", "--target", library, "--python", sys.executable, "--python-version", "3.11",
        "--python-platform", wheels, "--only-binary", ":all:", "--no-deps", "--require-hashes",
        "-r", ROOT / "requirements" / "operator.txt",
    ], check=True, timeout=600)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "operator" / "enginewright", library / "enginewright", ignore=ignore)
    contract = library / "enginewright_builder"
    contract.mkdir()
    for name in ("__init__.py", "contract.py"):
        shutil.copy(ROOT / "builders" / "enginewright_builder" / name, contract)


if __name__ == "__main__":
    sys.exit(main())
