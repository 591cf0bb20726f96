"""``make release``: all files of a release into build/release, the same bytes for the same commit."""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cluster.steps import say
from images.buildah import BuildError
from release import make, provenance, version
from release.signing import BadKeyError
from release.source import SourceError


def main() -> int:
    options = _parser().parse_args()
    try:
        if options.to:
            version.change(options.to)
            return 0
        return _make(_options(options), twice=options.twice)
    except (SourceError, BadKeyError, BuildError, ValueError) as error:
        say(f"error: {error}")
    except subprocess.CalledProcessError as error:
        say(f"error: {error}\n{error.stderr or ''}")
    return 1


def _make(options: make.Options, *, twice: bool) -> int:
    output = make.make(options)
    for path in sorted(output.iterdir()):
        say(f"    {path.stat().st_size / 1e6:8.1f} MB  {path.name}")
    if not twice:
        return 0
    say("once more, to compare")
    before = os.umask(0o077)
    try:
        with tempfile.TemporaryDirectory(dir=output.parent) as directory:
            again = make.make(dataclasses.replace(options, output=Path(directory) / "again"))
            differing = differences(output, again)
    finally:
        os.umask(before)
    say("both have the same digests" if not differing else f"error: not the same twice: {', '.join(differing)}")
    return 1 if differing else 0


def differences(one: Path, other: Path) -> list[str]:
    """Names of files that the folders do not have alike."""
    names = sorted({path.name for folder in (one, other) for path in folder.iterdir()})
    return [name for name in names if not _same(one / name, other / name)]


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.read_bytes() == other.read_bytes()


def _options(given: argparse.Namespace) -> make.Options:
    return make.Options(
        output=given.output.absolute(), registry=given.registry, cuda=given.cuda, url=given.url,
        key=Path(given.key) if given.key else None, password=os.environ.get("RELEASE_KEY_PASSWORD", ""),
        builder=given.builder, dirty=given.dirty, without=frozenset(given.without),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("--output", type=Path, default=make.ROOT / "build" / "release")
    parser.add_argument("--registry", default="", help="host[:port][/path] where images will lie: the chart's default")
    parser.add_argument("--cuda", action="store_true", help="the images for NVIDIA GPUs as well")
    parser.add_argument("--url", default="", help="https://… of the plugin's archives: makes krew's manifest")
    parser.add_argument("--key", default="", help="PEM file of an ECDSA key on P-256: signs sums and provenance; "
                                                  "RELEASE_KEY_PASSWORD has its password")
    parser.add_argument("--builder", default=provenance.BUILDER, help="address of who makes the release, in provenance")
    parser.add_argument("--dirty", action="store_true", help="though files differ from the last commit")
    parser.add_argument("--without", action="append", default=[], choices=("images", "plugin"))
    parser.add_argument("--twice", action="store_true", help="make it again, and fail where the bytes differ")
    parser.add_argument("--to", default="", metavar="X.Y.Z", help="only write this version into all files that have it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
