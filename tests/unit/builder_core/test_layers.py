"""Files out of layers, whatever an archive says."""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.errors import UserError
from enginewright_builder.sources import layers
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.layers import Layers
from support.artifacts import member, tar

URI = "oci://registry.example/net:1"
OPAQUE = ".wh..wh..opq"


def laid_out(tmp_path: Path, *blobs: bytes, wanted: str = "models", changes: bool = True,
             limit: int = 1 << 20) -> dict[str, bytes]:
    """What the archives make together, by name."""
    pool, root = tmp_path / "pool", tmp_path / "root"
    pool.mkdir()
    found = Layers(pool, wanted, URI, FetchContext(mounts={}, scratch=tmp_path, size_limit=limit))
    for blob in blobs:
        (pool / "blob").write_bytes(blob)
        found.add_archive(pool / "blob", changes=changes)
    found.lay_out(root)
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def refused(tmp_path: Path, *blobs: bytes, changes: bool = False, limit: int = 1 << 20) -> UserError:
    with pytest.raises(UserError) as caught:
        laid_out(tmp_path, *blobs, wanted="models" if changes else "", changes=changes, limit=limit)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(tmp_path / "pool")]
    return caught.value


LOWER = {"models/a": b"1", "models/b/c": b"1", "models/b/d": b"1", "models/e/f": b"1", "models/g": b"1", "etc/h": b"1"}


@pytest.mark.parametrize(("upper", "left"), [
    ({}, {"a": b"1", "b/c": b"1", "b/d": b"1", "e/f": b"1", "g": b"1"}),
    ({"models/a": b"2", "models/new": b"2"},
     {"a": b"2", "b/c": b"1", "b/d": b"1", "e/f": b"1", "g": b"1", "new": b"2"}),
    ({"models/.wh.a": b"", "models/b/.wh.c": b"", "models/.wh.e": b""}, {"b/d": b"1", "g": b"1"}),
    ({f"models/b/{OPAQUE}": b"", "models/b/n": b"2"}, {"a": b"1", "b/n": b"2", "e/f": b"1", "g": b"1"}),
    ({"models/b/n": b"2", f"models/b/{OPAQUE}": b""}, {"a": b"1", "b/n": b"2", "e/f": b"1", "g": b"1"}),
    ({"models/.wh.b": b"", "models/b/n": b"2"}, {"a": b"1", "b/n": b"2", "e/f": b"1", "g": b"1"}),
    ({f"models/{OPAQUE}": b"", "models/n": b"2"}, {"n": b"2"}), ({OPAQUE: b"", "models/n": b"2"}, {"n": b"2"}),
    ({".wh.models": b"", "models/n": b"2"}, {"n": b"2"}), ({".wh.models": b""}, {}),
    ({"models": b"file"}, {"": b"file"}),
    ({"models/a/n": b"2"}, {"a/n": b"2", "b/c": b"1", "b/d": b"1", "e/f": b"1", "g": b"1"}),
    ({"models/b": b"2"}, {"a": b"1", "b": b"2", "e/f": b"1", "g": b"1"}),
    ({"models/.wh..wh.aufs": b""}, {"a": b"1", "b/c": b"1", "b/d": b"1", "e/f": b"1", "g": b"1"}),
])
def test_what_a_layer_changes_of_those_below_it(upper: Mapping[str, bytes], left: Mapping[str, bytes],
                                                tmp_path: Path) -> None:
    found = laid_out(tmp_path, tar(LOWER), tar(upper))
    assert found == {f"models/{name}".rstrip("/"): data for name, data in left.items()}


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
LAYERS = st.lists(st.tuples(st.sets(PATHS, max_size=4), st.sets(PATHS, max_size=2), st.sets(PATHS, max_size=1),
                            st.randoms(use_true_random=False)), min_size=1, max_size=4)


def below(name: str, folder: str) -> bool:
    return name.startswith(f"{folder}/")


@given(changes=LAYERS)
def test_layers_make_what_the_specification_says_in_whatever_order_they_say_it(
        changes: list[tuple[set[str], set[str], set[str], Random]]) -> None:
    wanted, blobs = dict[str, bytes](), list[bytes]()
    for number, (files, gone, emptied, order) in enumerate(changes):
        # No folder has a file and a folder of one name.
        files = {name for name in files if not any(below(other, name) for other in files)}
        wanted = {name: data for name, data in wanted.items()
                  if not any(name == one or below(name, one) for one in gone | files)
                  and not any(below(name, one) for one in emptied) and not any(below(one, name) for one in files)}
        wanted |= dict.fromkeys(files, str(number).encode())
        said = [*files, *(f"{name[:-1]}.wh.{name[-1]}" for name in gone), *(f"{name}/{OPAQUE}" for name in emptied)]
        order.shuffle(said)
        blobs.append(tar({f"models/{name}": b"" if ".wh." in name else str(number).encode() for name in said}))
    with tempfile.TemporaryDirectory() as folder:
        assert laid_out(Path(folder), *blobs) == {f"models/{name}": data for name, data in wanted.items()}


NAMES = st.lists(st.sampled_from(("a", "b", "..", ".", "", "models")), min_size=1, max_size=4).map("/".join)
KINDS = st.sampled_from((tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE))


@given(members=st.lists(st.builds(member, NAMES, KINDS, NAMES), max_size=6),
       wanted=st.sampled_from(("", "a", "models")), changes=st.booleans())
def test_whatever_an_archive_says_nothing_is_written_elsewhere_and_no_link_is_made(
        members: list[tarfile.TarInfo], wanted: str, changes: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "one" / "two"
        home.mkdir(parents=True)
        with contextlib.suppress(UserError):
            laid_out(home, tar({}, *members), wanted=wanted, changes=changes)
        found = [path for path in Path(folder).rglob("*") if not path.is_dir() or path.is_symlink()]
        assert all(path.is_relative_to(home / "pool") or path.is_relative_to(home / "root" / wanted) for path in found)
        assert not any(path.is_symlink() for path in found)


def test_a_folder_takes_the_place_of_a_file(tmp_path: Path) -> None:
    lower, upper = tar({"models/a": b"1", "models/b": b"1"}), tar({}, member("models/a", tarfile.DIRTYPE))
    assert laid_out(tmp_path, lower, upper) == {"models/b": b"1"}


def test_two_layers_below_each_other_and_the_same_name_twice(tmp_path: Path) -> None:
    twice = io.BytesIO(tar({"models/a": b"2"})[:1024] + tar({"models/a": b"3"}))
    assert laid_out(tmp_path, tar({"models/a": b"1"}), twice.getvalue(), tar({"models/b": b"4"})) == {
        "models/a": b"3", "models/b": b"4"}


def test_in_what_is_no_image_a_whiteout_is_a_file(tmp_path: Path) -> None:
    found = laid_out(tmp_path, tar({"a": b"1"}), tar({".wh.a": b""}), wanted="", changes=False)
    assert found == {"a": b"1", ".wh.a": b""}


@pytest.mark.parametrize("compressed", [bytes, gzip.compress, zstd.compress])
def test_an_image_is_looked_through_for_what_is_wanted_alone(compressed: Callable[[bytes], bytes],
                                                             tmp_path: Path) -> None:
    """Its devices and its links to itself are none of ours."""
    blob = tar({"./models/net/a": b"1", "/models/net/b": b"2", "models/other": b"3", "modelsnot": b"4"},
               member("dev/null", tarfile.CHRTYPE), member("bin", tarfile.SYMTYPE, "usr/bin"),
               member("lib/x", tarfile.LNKTYPE, "lib/y"))
    found = laid_out(tmp_path, compressed(blob), wanted="models/net")
    assert found == {"models/net/a": b"1", "models/net/b": b"2"}


def test_links_are_what_they_lead_to(tmp_path: Path) -> None:
    """As the hub's cache has them, which is how many folders come to be packed."""
    lower = tar({"models/blobs/1": b"one", "models/two": b"two"}, member("models/hard", tarfile.LNKTYPE, "models/two"))
    upper = tar({}, member("models/net/a", tarfile.SYMTYPE, "../blobs/1"), member("models/b", tarfile.SYMTYPE, "net/a"),
                member("models/c", tarfile.SYMTYPE, "/models/blobs/1"), member("models/.wh.two", tarfile.REGTYPE),
                member("models/late", tarfile.LNKTYPE, "./models/hard"))
    assert laid_out(tmp_path, lower, upper) == {
        "models/blobs/1": b"one", "models/hard": b"two", "models/late": b"two", "models/net/a": b"one",
        "models/b": b"one", "models/c": b"one"}


@pytest.mark.parametrize(("members", "said"), [
    ([member("../x", tarfile.REGTYPE)], "leads out of its folder"),
    ([member("a/../../x", tarfile.REGTYPE)], "leads out of its folder"),
    ([member("/etc/cron.d/x", tarfile.REGTYPE)], "leads out of its folder"),
    ([member("..", tarfile.DIRTYPE)], "leads out of its folder"),
    ([member("a", tarfile.SYMTYPE, "/etc/passwd")], "a is a link to etc/passwd, which is not a file of the folder"),
    ([member("a", tarfile.SYMTYPE, "../../etc/passwd")], "a link to '../../etc/passwd' leads out"),
    ([member("a", tarfile.LNKTYPE, "/etc/passwd")], "a is a link to etc/passwd, which is not a file of the folder"),
    ([member("a", tarfile.LNKTYPE, "../../etc/passwd")], "leads out of its folder"),
    ([member("a", tarfile.SYMTYPE, "a")], "a is a link to a"), ([member("a", tarfile.SYMTYPE, ".")], "a is a link to"),
    ([member("a", tarfile.SYMTYPE, "b"), member("b", tarfile.SYMTYPE, "a")], "is a link to"),
    ([member("d", tarfile.SYMTYPE, "/tmp"), member("d/x", tarfile.REGTYPE)], "d is both a file and a folder"),
    ([member("d", tarfile.SYMTYPE, "e"), member("e", tarfile.REGTYPE), member("d/x", tarfile.REGTYPE)], "both a file"),
    ([member("a", tarfile.CHRTYPE)], "a is no file, folder or link"),
    ([member("a", tarfile.FIFOTYPE)], "a is no file, folder or link"),
    ([member("a", tarfile.GNUTYPE_SPARSE)], "a is no file, folder or link"),
    ([member("x" * 251, tarfile.REGTYPE)], "more than 250 bytes"),
    ([member("x\udcff", tarfile.REGTYPE)], "surrogates not allowed"),
    ([member("a", tarfile.SYMTYPE, "x\udcff")], "surrogates not allowed"),
])
def test_what_leads_elsewhere_is_refused(members: list[tarfile.TarInfo], said: str, tmp_path: Path) -> None:
    error = refused(tmp_path, tar({}, *members))
    assert (error.reason, error.field) == ("SourceUriInvalid", "spec.source.uri")
    assert said in error.message


@pytest.mark.parametrize(("members", "said"), [
    ([member("models/../../x", tarfile.REGTYPE)], "leads out of its folder"),
    ([member("models", tarfile.SYMTYPE, "/opt/models")], "models is a link to opt/models"),
    ([member("models/a", tarfile.SYMTYPE, "../etc/passwd")], "models/a is a link to etc/passwd"),
    ([member("models/a", tarfile.LNKTYPE, "etc/passwd")], "models/a is a link to etc/passwd"),
])
def test_nor_does_an_image_reach_beyond_what_is_wanted(members: list[tarfile.TarInfo], said: str,
                                                       tmp_path: Path) -> None:
    error = refused(tmp_path, tar({"etc/passwd": b"root"}, *members), changes=True)
    assert (error.reason, said in error.message) == ("SourceUriInvalid", True)


def test_a_link_on_the_way_to_what_is_wanted_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="opt is a link to usr/opt"):
        laid_out(tmp_path, tar({"usr/opt/net/a": b"1"}, member("opt", tarfile.SYMTYPE, "usr/opt")), wanted="opt/net")


def test_names_that_are_no_text_can_be_told(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(tar({"etc/x\udcff": b"", "y\udcff": b"", "opt/z": b""}))
    found = Layers(tmp_path, "models", URI, FetchContext(mounts={}, scratch=tmp_path))
    found.add_archive(tmp_path / "blob", changes=True)
    assert (found.names, found.tops) == ([], {"etc", "y?", "opt"})


@pytest.mark.parametrize("compressed", [gzip.compress, zstd.compress])
def test_more_than_there_is_room_for_is_not_unpacked(compressed: Callable[[bytes], bytes], tmp_path: Path) -> None:
    error = refused(tmp_path, compressed(tar({"zeros": bytes(5 << 20)})))
    assert (error.reason, "1,048,576 bytes, unpacked" in error.message) == ("SourceTooLarge", True)
    assert sum(path.stat().st_size for path in (tmp_path / "pool").iterdir()) < 1 << 20


@pytest.mark.parametrize("compressed", [gzip.compress, zstd.compress])
def test_nor_looked_through_without_end(compressed: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """What is not wanted takes no room, but time."""
    error = refused(tmp_path, compressed(tar({"etc/zeros": bytes(20 << 20)})), changes=True)
    assert error.reason == "SourceTooLarge"


def test_nor_more_files_than_a_folder_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MOST_FILES", 3)
    error = refused(tmp_path, tar({str(number): b"" for number in range(4)}))
    assert (error.reason, "more than 3 files" in error.message) == ("SourceTooLarge", True)
    monkeypatch.setattr(layers, "MOST_MEMBERS", 3)
    (tmp_path / "again").mkdir()
    assert refused(tmp_path / "again", tar({f"etc/{number}": b"" for number in range(4)}), changes=True).reason == (
        "SourceCorrupt")


def long_header() -> bytes:
    """An extended header that says it is 4 GB long."""
    header = member("a", tarfile.XHDTYPE)
    header.size = 4 << 30
    return gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + bytes(1 << 20))


def wide_window() -> bytes:
    """A sound frame, which whoever reads it must have 256 MiB of memory for."""
    options: dict[int, int] = {zstd.CompressionParameter.window_log: 28, zstd.CompressionParameter.content_size_flag: 0}
    packer = zstd.ZstdCompressor(options=options)
    return packer.compress(tar({"a": b"x" * 5000})) + packer.flush()


@pytest.mark.parametrize(("blob", "reason", "said"), [
    (b"no archive" * 100, "SourceCorrupt", "no whole archive"), (b"", "SourceCorrupt", "no whole archive"),
    (gzip.compress(tar({"a": b"x" * 5000}))[:-20], "SourceCorrupt", "no whole archive"),
    (tar({"a": b"x" * 5000})[:2000], "SourceCorrupt", "cut off"), (long_header(), "SourceCorrupt", "a header of"),
    (zstd.compress(tar({"a": b"x" * 5000}))[:-20], "SourceCorrupt", "no whole archive"),
    (b"\x28\xb5\x2f\xfd" + bytes(100), "SourceCorrupt", "no whole archive"),
    (wide_window(), "SourceCorrupt", "no whole archive"),
])
def test_what_is_no_archive_is_told(blob: bytes, reason: str, said: str, tmp_path: Path) -> None:
    error = refused(tmp_path, blob)
    assert error.reason == reason
    assert said in error.message
    assert error.remedy
