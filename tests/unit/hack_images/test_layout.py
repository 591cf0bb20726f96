"""Archives out of a shared OCI layout."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from cluster import image_archive
from images import layout

REFERENCE = "localhost/enginewright-one:abc"


def put(root: Path, content: bytes) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    (root / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    (root / "blobs" / "sha256" / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Two images with one layer in common."""
    root = tmp_path / "layout"
    common = put(root, b"common")
    manifests = []
    for name in ("one", "two"):
        manifest = {"config": put(root, f'{{"of": "{name}"}}'.encode()), "layers": [common, put(root, name.encode())]}
        descriptor = put(root, json.dumps(manifest).encode())
        manifests.append({**descriptor, "annotations": {"org.opencontainers.image.ref.name": name}})
    (root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))
    return root


def test_an_archive_holds_one_image_under_its_reference(shared: Path, tmp_path: Path) -> None:
    archive = tmp_path / "one.tar"
    size = layout.write_archive(shared, "one", REFERENCE, archive)
    assert size == archive.stat().st_size
    with tarfile.open(archive) as tar:
        blobs = [member for member in tar.getnames() if member.startswith("blobs/")]
        for name in blobs:
            stream = tar.extractfile(name)
            assert stream is not None
            assert hashlib.sha256(stream.read()).hexdigest() == name.rpartition("/")[2]
        index = json.loads(tar.extractfile("index.json").read())  # type: ignore[union-attr]
    assert len(blobs) == 4
    assert [entry["annotations"]["io.containerd.image.name"] for entry in index["manifests"]] == [REFERENCE]


def test_the_cluster_reads_the_archive(shared: Path, tmp_path: Path) -> None:
    archive = tmp_path / "one.tar"
    layout.write_archive(shared, "one", REFERENCE, archive)
    config = hashlib.sha256(b'{"of": "one"}').hexdigest()
    assert image_archive.images(archive) == [image_archive.ArchivedImage((REFERENCE,), f"sha256:{config}")]


def test_an_archive_that_cannot_be_finished_is_not_there(shared: Path, tmp_path: Path) -> None:
    (shared / "blobs" / "sha256" / hashlib.sha256(b"common").hexdigest()).unlink()
    archive = tmp_path / "one.tar"
    with pytest.raises(FileNotFoundError):
        layout.write_archive(shared, "one", REFERENCE, archive)
    assert not archive.exists()


def test_equal_images_give_equal_archives(shared: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1.tar", tmp_path / "2.tar"
    for archive in (first, second):
        layout.write_archive(shared, "one", REFERENCE, archive)
    assert first.read_bytes() == second.read_bytes()


def test_what_only_a_forgotten_image_had_is_removed(shared: Path, tmp_path: Path) -> None:
    layout.keep_only(shared, {"two"})
    assert len(list((shared / "blobs" / "sha256").iterdir())) == 4
    assert layout.write_archive(shared, "two", REFERENCE, tmp_path / "two.tar") > 0
    with pytest.raises(KeyError):
        layout.write_archive(shared, "one", REFERENCE, tmp_path / "one.tar")
