"""Image archives, written and read."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from cluster import image_archive
from cluster.steps import ClusterError


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1", "docker.io/library/busybox:1"),
        ("me/app", "docker.io/me/app:latest"),
        ("localhost/app:2", "localhost/app:2"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("ghcr.io/me/app@sha256:0", "ghcr.io/me/app@sha256:0"),
    ],
)
def test_names_are_completed(given: str, full: str) -> None:
    assert image_archive.canonical(given) == full


def program(directory: Path) -> Path:
    path = directory / "pause"
    path.write_bytes(b"\x7fELF program")
    return path


def test_an_image_of_a_program_is_read_back_and_is_the_same_every_time(tmp_path: Path) -> None:
    archives = [tmp_path / "a.tar", tmp_path / "b.tar"]
    for archive in archives:
        image_archive.write_program_image(archive, program(tmp_path), "localhost/pause:1", "65535:65535")
    assert archives[0].read_bytes() == archives[1].read_bytes()
    [image] = image_archive.images(archives[0])
    assert image.references == ("localhost/pause:1",)


def test_every_blob_lies_under_its_digest_and_the_layer_holds_the_program(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    image_archive.write_program_image(archive, program(tmp_path), "localhost/pause:1", "65535:65535")
    with tarfile.open(archive) as tar:
        blobs = {name: tar.extractfile(name) for name in tar.getnames() if name.startswith("blobs/")}
        contents = {name: stream.read() for name, stream in blobs.items() if stream is not None}
    assert all(hashlib.sha256(content).hexdigest() == name.rpartition("/")[2] for name, content in contents.items())
    config = next(json.loads(content) for content in contents.values() if b"rootfs" in content)
    assert config["config"] == {"Entrypoint": ["/pause"], "Env": ["PATH=/"], "User": "65535:65535"}
    layer = contents["blobs/" + config["rootfs"]["diff_ids"][0].replace(":", "/")]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert [(entry.name, entry.mode) for entry in tar] == [("pause", 0o755)]


def docker_archive(path: Path, entries: list[dict[str, object]], files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in {"manifest.json": json.dumps(entries).encode(), **files}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def test_a_docker_archive_names_its_images_by_all_their_tags(tmp_path: Path) -> None:
    entries: list[dict[str, object]] = [{"Config": "c.json", "RepoTags": ["app:1", "localhost/app:2"], "Layers": []}]
    archive = docker_archive(tmp_path / "a.tar", entries, {"c.json": b"{}"})
    digest = f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
    expected = image_archive.ArchivedImage(("docker.io/library/app:1", "localhost/app:2"), digest)
    assert image_archive.images(archive) == [expected]


def test_an_archive_without_a_name_says_how_to_make_one_with(tmp_path: Path) -> None:
    archive = docker_archive(tmp_path / "a.tar", [{"Config": "c.json", "RepoTags": None}], {"c.json": b"{}"})
    with pytest.raises(ClusterError, match="names no image"):
        image_archive.images(archive)


@pytest.mark.parametrize("content", [b"", b"no archive", b"\0" * 2048])
def test_what_is_no_archive_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    with pytest.raises(ClusterError, match=r"x\.tar is not a Docker or OCI image archive"):
        image_archive.images(path)


def test_an_archive_that_lacks_what_it_names_is_refused(tmp_path: Path) -> None:
    archive = docker_archive(tmp_path / "a.tar", [{"Config": "gone.json", "RepoTags": ["a:1"]}], {})
    with pytest.raises(ClusterError, match=r"gone\.json"):
        image_archive.images(archive)
