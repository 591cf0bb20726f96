"""``hack/images/images``: build what changed, say what the images are called and where their archives lie."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.paths import cache_dir
from cluster.steps import say, step, tail
from images import debian, host, layout
from images.buildah import Buildah, BuildError
from images.containerfile import ContainerfileError
from images.keys import MissingInputError
from images.recipe import ACCELERATORS, NAMES, OPTIONAL, OWN_BASE, Recipe

# Fast to make and to read, and about a third of the size.
COMPRESSION = ("--compression-format=zstd", "--compression-level=1")
ALL = (*NAMES, *OPTIONAL)
# Of each image, so that one can go back to the state before an edit without a build.
KEPT_ARCHIVES = 2


def main() -> int:
    arguments = _parser().parse_args()
    try:
        arguments.run(arguments)
    except (BuildError, ContainerfileError, MissingInputError) as error:
        say(f"error: {error}")
        if isinstance(error, BuildError) and error.log:
            say(f"--- end of {error.log} ---\n{tail(error.log).rstrip()}")
        return 1
    return 0


def archive_path(recipe: Recipe, name: str) -> Path:
    return _cache() / "archives" / f"{name}-{recipe.key(name)}.tar"


def build(names: Iterable[str], accelerator: str = ACCELERATORS[0]) -> dict[str, dict[str, str]]:
    """Build the images of ``names`` that changed, and their archives; returns each one's reference and archive.

    What is returned is what was built, whatever happens to the sources meanwhile.

    Raises:
        BuildError: a program is missing, or a build failed.
    """
    wanted = [name for name in ALL if name in set(names)]
    with _locked(), tempfile.TemporaryDirectory() as directory:
        recipe = Recipe.read(accelerator).snapshot(Path(directory))
        missing = [name for name in wanted if not archive_path(recipe, name).exists()]
        if missing:
            _require("buildah", "mmdebstrap")
            buildah = Buildah(_cache(), lambda line: say(f"    {line}"))
            if recipe.arguments["DEBIAN"].startswith(f"{OWN_BASE}:"):
                debian.ensure(buildah, recipe.arguments["DEBIAN"])
            for name in missing:
                _build(buildah, recipe, name)
            _prune(buildah, recipe, missing)
        for name in wanted:
            path = archive_path(recipe, name)
            say(f"  ✓ {recipe.reference(name)} {path.stat().st_size / 1e6:.0f} MB")
        return {
            name: {"reference": recipe.reference(name), "archive": str(archive_path(recipe, name))} for name in wanted
        }


def _build(buildah: Buildah, recipe: Recipe, name: str) -> None:
    reference = recipe.reference(name)
    containerfile = recipe.context / f"Containerfile.{name}"
    containerfile.write_text(recipe.containerfile(name))
    with step(f"image {name}"), host.index_secrets(buildah.scratch) as secrets:
        buildah.build(
            recipe.context, containerfile, reference, buildah.log(name),
            target=name, arguments=recipe.build_arguments(), secrets=secrets,
        )
    archive = archive_path(recipe, name)
    archive.parent.mkdir(exist_ok=True)
    with step(f"archive {name}"):
        shared = _cache() / "layout"
        with layout.sparing_known_layers(shared, archive.stem):
            buildah.push(reference, f"oci:{shared}:{archive.stem}", *COMPRESSION)
        layout.write_archive(shared, archive.stem, reference, archive)


def push(registry: str, names: Iterable[str], accelerator: str, verify_tls: bool) -> dict[str, str]:
    """Build, then push to ``registry`` (``host[:port][/path]``); returns the references there."""
    build(names, accelerator)
    recipe = Recipe.read(accelerator)
    buildah = Buildah(_cache(), say)
    pushed = {}
    for name in names:
        reference = recipe.reference(name)
        target = f"{registry.rstrip('/')}/{reference.partition('/')[2]}"
        with step(f"push {target}"):
            if not buildah.has(reference):
                buildah.pull(f"oci-archive:{archive_path(recipe, name)}", reference)
            buildah.push(reference, f"docker://{target}", f"--tls-verify={str(verify_tls).lower()}")
        pushed[name] = target
    return pushed


def archives(names: Iterable[str], accelerator: str) -> dict[str, str]:
    """Paths of the archives.

    Raises:
        BuildError: one is not built.
    """
    recipe = Recipe.read(accelerator)
    found = {name: archive_path(recipe, name) for name in names}
    if absent := [name for name, path in found.items() if not path.exists()]:
        raise BuildError(f"not built as the sources are now: {', '.join(absent)}; run {sys.argv[0]} build")
    return {name: str(path) for name, path in found.items()}


def clean() -> None:
    """Remove all images, archives and caches of builds."""
    if (_cache() / "store").exists() and shutil.which("buildah"):
        Buildah(_cache(), say).forget()
    shutil.rmtree(_cache(), ignore_errors=True)


def _prune(buildah: Buildah, recipe: Recipe, built: Iterable[str]) -> None:
    """Remove all but the newest images and archives of what was built; their layers stay where a kept image has
    them."""
    for name in built:
        current = archive_path(recipe, name)
        others = [path for path in _archives_of(current.parent, name) if path != current]
        for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT_ARCHIVES - 1 :]:
            path.unlink()
        kept = {path.stem.rpartition("-")[2] for path in _archives_of(current.parent, name)}
        stored = buildah.references(recipe.repository(name))
        buildah.remove([reference for reference in stored if reference.rpartition(":")[2] not in kept])
    layout.keep_only(_cache() / "layout", {path.stem for path in (_cache() / "archives").glob("*.tar")})


def _archives_of(folder: Path, name: str) -> list[Path]:
    """Not those of an image whose name only begins alike."""
    return [path for path in folder.glob(f"{name}-*.tar") if path.stem.rpartition("-")[0] == name]


@contextmanager
def _locked() -> Iterator[None]:
    """One build at a time in one cache: a second waits, and then finds the work done."""
    _cache().mkdir(parents=True, exist_ok=True)
    with (_cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _require(*programs: str) -> None:
    if absent := [program for program in programs if not shutil.which(program)]:
        raise BuildError(f"{' and '.join(absent)} missing: run hack/bin-deps.sh (as root, Debian 12)")
    if os.geteuid() != 0:
        raise BuildError("building images needs root; `docker build` does too, see builders/images/Containerfile")


_NAMES_HELP = f"of {', '.join(ALL)}; default {', '.join(NAMES)}"


def _cache() -> Path:
    return cache_dir() / "images"


def _name(text: str) -> str:
    if text not in ALL:
        raise argparse.ArgumentTypeError(f"there is no image '{text}'; write one of {', '.join(ALL)}")
    return text


def _build_verb(given: argparse.Namespace) -> None:
    built = build(given.names or NAMES, given.accelerator)
    if given.json:
        _print(built)


def _print(value: object) -> None:
    print(json.dumps(value, indent=2))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="images", description="Build and find the container images.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    building = verbs.add_parser("build", help="build what changed")
    building.add_argument("--json", action="store_true", help="print references and archives, JSON by name")
    building.set_defaults(run=_build_verb)
    naming = verbs.add_parser("refs", help="print the images' references, JSON by name")
    naming.set_defaults(run=lambda given: _print({name: Recipe.read(given.accelerator).reference(name)
                                                  for name in given.names or NAMES}))
    finding = verbs.add_parser("archives", help="print the paths of the archives to load, JSON by name")
    finding.set_defaults(run=lambda given: _print(archives(given.names or NAMES, given.accelerator)))
    pushing = verbs.add_parser("push", help="build, push to a registry, print the references there")
    pushing.add_argument("registry", help="host[:port][/path]")
    pushing.add_argument("--insecure", action="store_true", help="do not verify the registry's certificate")
    pushing.set_defaults(run=lambda given: _print(push(given.registry, given.names or NAMES, given.accelerator,
                                                       verify_tls=not given.insecure)))
    for verb in (building, naming, finding, pushing):
        verb.add_argument("names", nargs="*", type=_name, metavar="NAME", help=_NAMES_HELP)
        verb.add_argument("--accelerator", choices=ACCELERATORS, default=ACCELERATORS[0],
                          help="what server and builder compute on: cuda is NVIDIA GPUs; default %(default)s")
    verbs.add_parser("clean", help="remove all images, archives and caches").set_defaults(run=lambda _: clean())
    return parser
