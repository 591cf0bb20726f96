"""The steps of a release, one after the other, each of which adds files to one flat folder."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

import generate
from cluster import binaries
from cluster.steps import say, step
from images import cli as image_builds
from images.recipe import NAMES
from krew import build as krew_build
from krew.__main__ import write_manifest
from krew.manifest import LAUNCHER, PLATFORMS, Archive
from release import chart, dists, locked, oci, provenance, repack, sbom, signing, source, version
from release.contents import METADATA, Package, python

ROOT = version.ROOT
# Of what makes the release; images name theirs.
LOCKS = ("requirements/dev.txt",)
SUMS = "SHA256SUMS"
# Not in SHA256SUMS: they are there only with a key.
SIGNED = (f"{SUMS}.sig", "provenance.intoto.jsonl", "release.pub")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the releaser says.

    Attributes:
        registry: where images will lie; empty leaves the chart's default empty.
        url: https address where the plugin's archives will lie; empty makes no manifest for krew.
        key: PEM file of an ECDSA key on P-256.
        builder: address that names the machine or person that makes the release.
        without: of ``images`` and ``plugin``, what is not made.
    """

    output: Path
    registry: str = ""
    cuda: bool = False
    url: str = ""
    key: Path | None = None
    password: str = field(default="", repr=False)
    builder: str = provenance.BUILDER
    dirty: bool = False
    without: frozenset[str] = frozenset()


@dataclass
class Release:
    """A release that is being made: ``tree`` has the tracked files, ``output`` gets what is made of them."""

    options: Options
    tree: Path
    output: Path
    version: str
    commit: str
    epoch: int
    images: list[repack.Image] = field(default_factory=list)
    locks: set[str] = field(default_factory=lambda: set(LOCKS))

    @property
    def created(self) -> str:
        return datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def make(options: Options) -> Path:
    """Fill ``options.output``, which appears complete or not at all.

    Raises:
        SourceError: files differ from the last commit.
        BadKeyError: the key cannot be used.
        ValueError: files name different versions, or the registry is none.
    """
    key = signing.load(options.key, options.password) if options.key else None
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory) / "release"
        made.mkdir()
        tree = source.export(ROOT, Path(directory) / "tree")
        release = Release(options, tree, made, version.current(tree), source.commit(ROOT, dirty=options.dirty),
                          source.epoch(ROOT))
        say(f"Enginewright {release.version}, commit {release.commit[:12]}")
        for each in (_packages, _chart, _plugin, _images, _bills_of_locks, _finish):
            each(release)
        if key:
            _sign(release, key)
        _replace(options.output, made)
    return options.output


def _packages(release: Release) -> None:
    with step("wheel and source archive"):
        dists.build(release.tree, release.output, release.epoch)


def _chart(release: Release) -> None:
    with step("chart, CRDs, install.yaml"), tempfile.TemporaryDirectory() as directory:
        copy = chart.copy(release.tree / "charts" / "enginewright", Path(directory))
        if release.options.registry:
            chart.with_registry(copy, release.options.registry, generate.render_defaults)
        packed = chart.package(copy, release.output)
        name = f"enginewright-chart-{release.version}.oci.tar"
        chart.artefact(packed, copy, release.output / name, release.created)
        chart.listing(release.tree / "charts" / "artifacthub-repo.yml", release.output / "artifacthub-repo.oci.tar")
        shutil.copy(release.tree / "crds" / "enginewright.io_optimisedmodels.yaml", release.output / "crds.yaml")
        shutil.copy(release.tree / "docs" / "schema" / "optimisedmodel.json",
                    release.output / "optimisedmodel.schema.json")
        registry = release.options.registry or chart.PLACEHOLDER
        text = chart.install_yaml(binaries.build(binaries.HELM), copy, release.version, registry)
        (release.output / "install.yaml").write_text(text)


def _plugin(release: Release) -> None:
    if "plugin" in release.options.without:
        return
    made: list[Archive] = []
    for platform in PLATFORMS:
        with step(f"kubectl plugin for {platform.os}/{platform.arch}"):
            one = krew_build.archive(platform, release.version, release.tree)
            path = release.output / one.name
            path.write_bytes(one.content)
            made.append(one)
            _bill(release, path, LAUNCHER, "APPLICATION", _digest(path), _packed(one.content, path.name))
    if release.options.url:
        write_manifest(release.output, made, release.options.url, release.options.url)
    else:
        say("    no manifest for krew: URL=https://… says where the archives will lie")


def _packed(content: bytes, name: str) -> list[Package]:
    return sorted({python(text) for path, text in _files(content, name) if METADATA.search(path)})


def _files(content: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    """Read in memory: Debian's Python 3.11.2 has no filter that would make unpacking safe."""
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield from ((path, archive.read(path)) for path in archive.namelist())
        return
    with tarfile.open(fileobj=io.BytesIO(content)) as packed:
        for member in packed:
            if file := packed.extractfile(member):
                yield member.name, file.read()


def _images(release: Release) -> None:
    if "images" in release.options.without:
        return
    _of_kind(release, "cpu", NAMES, "")
    if release.options.cuda:
        _of_kind(release, "cuda", ("server", "builder"), "-cuda")
    values: dict[str, Any] = {image.repository.rpartition("-")[2]: {"digest": image.digest}
                              for image in release.images if not image.tags[0].endswith("-cuda")}
    head = "# Images by digest, for helm install --values: an engine is rebuilt exactly when its builder changed.\n"
    path = release.output / f"enginewright-{release.version}-digests.yaml"
    path.write_text(head + yaml.safe_dump({"images": values}))
    listed = [{"repository": image.repository, "tags": list(image.tags), "digest": image.digest,
               "archive": image.archive.name} for image in release.images]
    (release.output / "images.json").write_bytes(oci.dump(listed) + b"\n")


def _of_kind(release: Release, accelerator: str, names: Sequence[str], suffix: str) -> None:
    built = image_builds.build(names, accelerator)
    prefix = f"{release.options.registry}/" if release.options.registry else ""
    for name, found in built.items():
        title = f"enginewright-{name}"
        with step(f"image {title}{suffix}"), tempfile.TemporaryDirectory(dir=_scratch()) as directory:
            target = release.output / f"{title}-{release.version}{suffix}.oci.tar"
            image = repack.repack(
                Path(found["archive"]), Path(directory) / "image.tar", prefix + title,
                [f"{tag}{suffix}" for tag in tags(release.version)], created=release.created, scratch=Path(directory),
                annotations={
                    "org.opencontainers.image.created": release.created,
                    "org.opencontainers.image.licenses": "Apache-2.0",
                    "org.opencontainers.image.revision": release.commit,
                    "org.opencontainers.image.title": title,
                    "org.opencontainers.image.version": release.version,
                })
            shutil.move(image.archive, target)
        image = repack.Image(image.repository, image.tags, image.digest, target, image.packages)
        release.images.append(image)
        _bill(release, target, title, "CONTAINER", _digest(target), image.packages)


def _bills_of_locks(release: Release) -> None:
    """Of each image a bill: where the release has not its archive, of the locks that a user builds it from."""
    for accelerator, names in locked.IMAGES.items():
        for name in names:
            found = locked.locked(release.tree, name, accelerator)
            release.locks |= set(found.locks)
            stem = f"enginewright-{name}-{release.version}{'-cuda' if accelerator == 'cuda' else ''}"
            if (release.output / f"{stem}.oci.tar").exists():
                continue
            sums = [f"{lock} sha256:{_digest(release.tree / lock)}" for lock in found.locks]
            subject = sbom.Subject(
                name=f"enginewright-{name}", version=release.version, file=f"{stem}.locks", purpose="CONTAINER",
                sha256=hashlib.sha256("\n".join(sums).encode()).hexdigest(), read_from=f"Locks: {', '.join(sums)}")
            _write_bill(release, subject, found.packages)


def tags(number: str) -> list[str]:
    """A version and the line that it belongs to; a release candidate belongs to none."""
    return [number] if "-" in number else [number, number.rpartition(".")[0]]


def _bill(release: Release, path: Path, name: str, purpose: str, digest: str, packages: Sequence[Package]) -> None:
    subject = sbom.Subject(name=name, version=release.version, file=path.name, purpose=purpose, sha256=digest)
    _write_bill(release, subject, packages)


def _write_bill(release: Release, subject: sbom.Subject, packages: Sequence[Package]) -> None:
    (release.output / f"{subject.file}.spdx.json").write_bytes(
        oci.dump(sbom.document(subject, packages, release.created)) + b"\n")


def _finish(release: Release) -> None:
    """The statement of provenance names every file and image; the sums have the statement, too."""
    subjects = {path.name: _digest(path) for path in sorted(release.output.iterdir())}
    subjects |= {f"{image.repository}:{image.tags[0]}": image.digest.partition(":")[2] for image in release.images}
    parameters = {"version": release.version, "registry": release.options.registry, "cuda": release.options.cuda,
                  "url": release.options.url, "without": sorted(release.options.without)}
    locks = {lock: _digest(release.tree / lock) for lock in sorted(release.locks)}
    made = provenance.statement(subjects, parameters, release.commit, locks, release.options.builder,
                                chart.repository(release.tree / "charts" / "enginewright"))
    (release.output / "provenance.json").write_bytes(oci.dump(made))
    sums = [f"{_digest(path)}  {path.name}\n" for path in sorted(release.output.iterdir())]
    (release.output / SUMS).write_text("".join(sums))


def _sign(release: Release, key: signing.Key) -> None:
    sums, statement = release.output / SUMS, release.output / "provenance.json"
    content = (signing.signature(key, sums.read_bytes()) + "\n").encode(), signing.envelope(
        key, provenance.PAYLOAD, statement.read_bytes()), signing.public(key)
    for name, data in zip(SIGNED, content, strict=True):
        (release.output / name).write_bytes(data)


def _replace(output: Path, made: Path) -> None:
    if output.exists() and any(output.iterdir()) and not (output / SUMS).exists():
        raise ValueError(f"{output} holds files that are no release: name another folder, or empty it")
    shutil.rmtree(output, ignore_errors=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(made, output)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _scratch() -> Path:
    """Layers take gigabytes, which /tmp may not have."""
    folder = ROOT / "build" / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
