"""``make krew URL=https://…``: an archive for each platform, and the manifest that names them, into build/krew."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from enginewright import __version__
from krew.build import HERE, ROOT, archive
from krew.manifest import PLATFORMS, Archive, render

OUTPUT = ROOT / "build" / "krew"


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
        one = archive(platform, __version__)
        (OUTPUT / one.name).write_bytes(one.content)
        print(f"{OUTPUT / one.name}  {len(one.content) / 1e6:.0f} MB")
        made.append(one)
    print(write_manifest(OUTPUT, made, options.url, options.homepage or options.url))
    return 0


def write_manifest(output: Path, made: Sequence[Archive], url: str, homepage: str) -> Path:
    manifest = output / "optimisedmodel.yaml"
    manifest.write_text(render((HERE / "optimisedmodel.yaml").read_text(), made, url, homepage))
    return manifest


if __name__ == "__main__":
    sys.exit(main())
