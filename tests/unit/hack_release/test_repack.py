"""Images of two builds, which differ in all that a machine leaves in them, and are one image as they are released."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from backports import zstd

from cluster import image_archive
from release import oci, repack
from release.contents import Contents, Package, debian, python

STATUS = """\
Package: bash
Status: install ok installed
Version: 5.2.15-2+b9

Package: gone
Status: deinstall ok config-files
Version: 1
"""
METADATA = "Metadata-Version: 2.4\nName: Left_Pad\nVersion: 1.0\nLicense-Expression: MIT\n\nName: not a header\n"


def layer(entries: dict[str, bytes], time: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode, entry.uid, entry.uname = len(content), time, 0o755, 7, f"user{time}"
            entry.pax_headers = {"atime": str(time + 0.5), "SCHILY.xattr.security.capability": "cap"}
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def built(folder: Path, time: int, *layers: dict[str, bytes]) -> Path:
    """As buildah leaves it."""
    plain = [layer(entries, time) for entries in layers]
    blobs = [oci.Blob.of(repack.LAYER, zstd.compress(each, time % 5 + 1)) for each in plain]
    config = oci.Blob.of(repack.CONFIG, oci.dump({
        "architecture": "amd64", "os": "linux", "created": f"{time}",
        "config": {"User": "65532", "Labels": {"io.buildah.version": f"{time}"}},
        "history": [{"created": f"{time}", "created_by": f"COPY file:{time:064}", "comment": f"FROM {time}"}],
        "rootfs": {"type": "layers", "diff_ids": [oci.sha256(each) for each in plain]}}))
    manifest = oci.manifest(config, blobs, {"base": f"{time}"})
    archive = folder / f"built-{time}.tar"
    oci.write(archive, manifest, [config, *blobs], [{"org.opencontainers.image.ref.name": f"localhost/x:{time}"}], {})
    return archive


def repacked(tmp_path: Path, archive: Path) -> repack.Image:
    scratch = tmp_path / f"scratch-{archive.name}"
    scratch.mkdir()
    return repack.repack(archive, tmp_path / f"released-{archive.name}", "registry.example.com/one", ["1.2.3", "1.2"],
                         created="2026-01-01T00:00:00Z", annotations={"version": "1.2.3"}, scratch=scratch)


FIRST = {"var/lib/dpkg/status": STATUS.encode(), "usr/bin/sh": b"#!",
         "usr/lib/old-1.0.dist-info/METADATA": b"Name: old\nVersion: 1.0\n\n"}
SECOND = {"usr/lib/.wh.old-1.0.dist-info": b"", "usr/lib/left_pad-1.0.dist-info/METADATA": METADATA.encode()}


def test_two_builds_are_one_image(tmp_path: Path) -> None:
    one, other = (repacked(tmp_path, built(tmp_path, time, FIRST, SECOND)) for time in (1111, 2222))
    assert one.digest == other.digest
    assert one.archive.read_bytes() == other.archive.read_bytes()
    third = repacked(tmp_path, built(tmp_path, 3, FIRST, {**SECOND, "usr/bin/sh": b"#?"}))
    assert third.digest != one.digest


def test_all_but_times_and_names_stays(tmp_path: Path) -> None:
    image = repacked(tmp_path, built(tmp_path, 7, FIRST))
    with tarfile.open(image.archive) as tar:
        described = oci.read(tar, oci.member(image.digest))
        config = oci.read(tar, oci.member(described["config"]["digest"]))
        stream = tar.extractfile(oci.member(described["layers"][0]["digest"]))
        assert stream is not None
        packed = stream.read()
    assert (oci.sha256(packed), len(packed)) == (described["layers"][0]["digest"], described["layers"][0]["size"])
    plain = zstd.decompress(packed)
    assert config["rootfs"]["diff_ids"] == [oci.sha256(plain)]
    assert config["config"] == {"User": "65532", "Labels": {}}
    assert config["history"] == [{"created": "2026-01-01T00:00:00Z", "created_by": "COPY file"}]
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        assert tar.getnames() == list(FIRST)
        entry = tar.getmember("usr/bin/sh")
    assert (entry.mode, entry.uid, entry.mtime, entry.uname) == (0o755, 7, 0, "")
    assert entry.pax_headers == {"SCHILY.xattr.security.capability": "cap"}


def test_a_node_reads_both_names(tmp_path: Path) -> None:
    image = repacked(tmp_path, built(tmp_path, 7, FIRST))
    (found,) = image_archive.images(image.archive)
    assert found.references == ("registry.example.com/one:1.2.3", "registry.example.com/one:1.2")
    with tarfile.open(image.archive) as tar:
        index = oci.read(tar, "index.json")
    names = [entry["annotations"]["org.opencontainers.image.ref.name"] for entry in index["manifests"]]
    assert names == ["1.2.3", "1.2"]
    assert {entry["digest"] for entry in index["manifests"]} == {image.digest}


def test_what_days_and_machines_leave_is_taken_out(tmp_path: Path) -> None:
    """As two machines left it in images of the same packages."""
    assert repack.without_days(b"root:*:20417:0:99999:7:::\nx:!:20418:0:::::\n") == (
        b"root:*:1:0:99999:7:::\nx:!:1:0:::::\n")
    one, other = ({**FIRST, "etc/shadow": f"root:*:2041{day}:0:99999:7:::\n".encode()} for day in (7, 8))
    assert repacked(tmp_path, built(tmp_path, 1, one)).digest == repacked(tmp_path, built(tmp_path, 2, other)).digest


def test_packages_are_those_that_the_last_layer_leaves(tmp_path: Path) -> None:
    image = repacked(tmp_path, built(tmp_path, 7, FIRST, SECOND))
    assert image.packages == (Package("deb", "bash", "5.2.15-2+b9"), Package("pypi", "Left_Pad", "1.0", "MIT"))
    purls = [package.purl for package in image.packages]
    assert purls == ["pkg:deb/debian/bash@5.2.15-2%2Bb9", "pkg:pypi/left-pad@1.0"]


@pytest.mark.parametrize(("hidden", "left"), [
    ("a/.wh.x-1.dist-info", 1), ("a/.wh..wh..opq", 1), (".wh.a", 1), (".wh.b", 1), ("a/.wh.x-1", 2),
    ("a/x-1.dist-info", 2),
])
def test_a_layer_hides_what_is_below(hidden: str, left: int) -> None:
    contents = Contents()
    for folder in ("a", "b"):
        path = f"{folder}/x-1.dist-info/METADATA"
        assert Contents.wants(path)
        contents.add(path, f"Name: {folder}\nVersion: 1\n\n".encode())
    contents.take_away(hidden)
    assert len(contents.packages()) == left


def test_metadata_without_a_name_is_refused() -> None:
    with pytest.raises(KeyError, match="Name"):
        python(b"Version: 1\n\n")
    assert debian("") == []
    assert json.loads(oci.dump({"b": 1, "a": 2})) == {"a": 2, "b": 1}
