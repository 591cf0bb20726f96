"""An archive with one name of a megabyte has the builder make every folder above it, which takes gigabytes."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from enginewright_builder.errors import UserError
from enginewright_builder.foreign_names import LONGEST_PATH, MOST_PARTS, check_names
from enginewright_builder.sources import layers
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.layers import Layers
from enginewright_builder.sources.torchserve import MANIFEST, unpack
from support.artifacts import member

URI = "oci://registry.example/net:1"
DEEP = "a/" * MOST_PARTS + "b"
LONG = "/".join("n" * 200 for _ in range(LONGEST_PATH // 200 + 1))
MEMORY = 32 << 20  # bytes, above what an archive with a usual name takes


def empty(name: str) -> tarfile.TarInfo:
    return member(name, tarfile.REGTYPE)


def packed(members: Sequence[tarfile.TarInfo], form: int = tarfile.PAX_FORMAT, **options: object) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form, **options) as archive:  # type: ignore[call-overload]
        for one in members:
            archive.addfile(one)
    return gzip.compress(made.getvalue())


def opened(tmp_path: Path, *blobs: bytes, wanted: str = "", changes: bool = True) -> Layers:
    found = Layers(tmp_path, wanted, URI, FetchContext(mounts={}, scratch=tmp_path, size_limit=1 << 30))
    for blob in blobs:
        (tmp_path / "blob").write_bytes(blob)
        found.add_archive(tmp_path / "blob", changes=changes)
    return found


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("name", [DEEP, LONG, "a/" * 20_000 + "b", f"{DEEP}/.wh.x"])
def test_a_name_that_no_file_can_have_is_refused(name: str, form: int, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"is a name of more than 4,096 bytes|has more than 256 parts") as caught:
            opened(tmp_path, packed([empty(name)], form))
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert caught.value.reason == "SourceUriInvalid"
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("made", [member("a", tarfile.SYMTYPE, LONG), member("a", tarfile.LNKTYPE, LONG)])
def test_nor_may_a_link_lead_to_one(made: tarfile.TarInfo, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a name of more than 4,096 bytes"):
        opened(tmp_path, packed([made]))


def test_many_long_names_take_no_more_than_they_are(tmp_path: Path) -> None:
    """Each in folders of its own, of which a layer above asks whether anything lies in them."""
    names = [f"{number:03}" + "".join(f"/{number:014}" for _ in range(MOST_PARTS - 1)) for number in range(200)]
    blobs = packed([empty("000/x")]), packed([empty(name) for name in names])
    tracemalloc.start()
    try:
        found = opened(tmp_path, *blobs)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert len(found.names) == 201


def test_names_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MOST_NAMES", 1000)
    for members in ([empty(f"{number:0100}/.wh.x") for number in range(11)],
                    [member(f"{number}", tarfile.SYMTYPE, "n" * 100) for number in range(11)]):
        with pytest.raises(UserError, match="names of more than 1,000 characters") as caught:
            opened(tmp_path, packed(members))
        assert caught.value.reason == "SourceTooLarge"


def header(kind: bytes, size: int) -> bytes:
    made = member("h", kind)
    made.size = size
    return made.tobuf(tarfile.USTAR_FORMAT) + b"a" * size + bytes(-size % tarfile.BLOCKSIZE)


@pytest.mark.parametrize(("blob", "said"), [
    (header(tarfile.GNUTYPE_LONGNAME, layers.LONGEST_HEADER + 1), "a header of"),
    (b"".join(header(tarfile.GNUTYPE_LONGNAME, 600) for _ in range(5000)), "recursion"),
    (packed([empty("a")], pax_headers={f"x.{number}": "1" for number in range(101)}), "more than 100 attributes"),
])
def test_headers_that_are_held_in_memory_are_bounded(blob: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said) as caught:
        opened(tmp_path, blob)
    assert caught.value.reason == "SourceCorrupt"


def test_the_longest_names_pass(tmp_path: Path) -> None:
    deep = "/".join(["a"] * MOST_PARTS)
    long = "/".join("n" * 255 for _ in range(LONGEST_PATH // 256))
    assert opened(tmp_path, packed([empty(deep), empty(long)])).names == sorted([deep, long])


@pytest.mark.parametrize("name", [DEEP, LONG])
def test_nor_does_a_listing_or_another_archive_get_one_in(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than"):
        check_names([name])
    with zipfile.ZipFile(tmp_path / "net.mar", "w") as archive:
        archive.writestr(MANIFEST, '{"model": {}}')
        archive.writestr(name, b"")
    with pytest.raises(UserError, match="more than") as caught:
        unpack(tmp_path / "net.mar", tmp_path / "unpacked")
    assert caught.value.reason == "SourceCorrupt"
