"""Archives out of a shared OCI layout."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from cluster import image_archive
from images import layout

REFERENCE = "localhost/enginewright-one:abc"


def put(root: Path, content: bytes) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    (root / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    (root / "blobs" / "sha256" / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


def digest_of(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def manifest_of(root: Path, name: str) -> dict[str, Any]:
    index = json.loads((root / "index.json").read_bytes())
    (descriptor,) = (
        each for each in index["manifests"] if each["annotations"]["org.opencontainers.image.ref.name"] == name
    )
    content = (root / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
    assert descriptor["size"] == len(content)
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    manifest: dict[str, Any] = json.loads(content)
    return manifest


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Two images with one layer in common."""
    root = tmp_path / "layout"
    common = put(root, b"common")
    manifests = []
    for name in ("one", "two"):
        config = {"of": name, "rootfs": {"diff_ids": [digest_of("common, unpacked"), digest_of(f"{name}, unpacked")]}}
        manifest = {"config": put(root, json.dumps(config).encode()), "layers": [common, put(root, name.encode())]}
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
    config = manifest_of(shared, "one")["config"]["digest"]
    assert image_archive.images(archive) == [image_archive.ArchivedImage((REFERENCE,), config)]


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


def push(root: Path, name: str, unpacked: list[str]) -> list[str]:
    """As buildah does: a layer that is there by its uncompressed digest is named so, another is compressed and added.

    Returns the layers that it compressed.
    """
    layers: list[dict[str, object]] = []
    compressed = []
    for text in unpacked:
        if (root / "blobs" / digest_of(text).replace(":", "/")).exists():
            layers.append({"digest": digest_of(text), "size": len(text)})
        else:
            compressed.append(text)
            layers.append(put(root, text.removesuffix(", unpacked").encode()))
    config = put(
        root, json.dumps({"of": name, "rootfs": {"diff_ids": [digest_of(text) for text in unpacked]}}).encode()
    )
    descriptor = put(root, json.dumps({"config": config, "layers": layers}).encode())
    entry = {**descriptor, "annotations": {"org.opencontainers.image.ref.name": name}}
    index = {"schemaVersion": 2, "manifests": []}
    if (root / "index.json").exists():
        index = json.loads((root / "index.json").read_bytes())
    index["manifests"] = [*index["manifests"], entry]  # type: ignore[misc]
    (root / "index.json").write_text(json.dumps(index))
    return compressed


def test_a_push_compresses_new_layers_only(shared: Path, tmp_path: Path) -> None:
    before = set((shared / "blobs" / "sha256").iterdir())
    with layout.sparing_known_layers(shared, "three"):
        assert push(shared, "three", ["common, unpacked", "three, unpacked"]) == ["three, unpacked"]
    digests = [layer["digest"] for layer in manifest_of(shared, "three")["layers"]]
    assert digests == [digest_of("common"), digest_of("three")]
    assert not [path for path in set((shared / "blobs" / "sha256").iterdir()) - before if path.stat().st_size == 0]
    assert layout.write_archive(shared, "three", REFERENCE, tmp_path / "three.tar") > 0


def test_the_first_push_compresses_everything(tmp_path: Path) -> None:
    root = tmp_path / "new"
    with layout.sparing_known_layers(root, "one"):
        assert push(root, "one", ["common, unpacked"]) == ["common, unpacked"]
    assert [layer["digest"] for layer in manifest_of(root, "one")["layers"]] == [digest_of("common")]


def test_a_push_that_fails_leaves_the_layout_as_it_was(shared: Path) -> None:
    def state() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in shared.rglob("*") if path.is_file()}

    before = state()
    with pytest.raises(OSError, match="full"), layout.sparing_known_layers(shared, "three"):
        raise OSError("full")
    assert state() == before


def test_a_push_that_was_killed_is_made_good_by_the_next(shared: Path, tmp_path: Path) -> None:
    """Its empty blobs stay, and a manifest that names them."""
    leftover = shared / "blobs" / digest_of("three, unpacked").replace(":", "/")
    leftover.touch()
    push(shared, "killed", ["three, unpacked"])
    with layout.sparing_known_layers(shared, "three"):
        assert push(shared, "three", ["common, unpacked", "three, unpacked"]) == ["three, unpacked"]
    assert not leftover.exists()
    assert layout.write_archive(shared, "three", REFERENCE, tmp_path / "three.tar") > 0
