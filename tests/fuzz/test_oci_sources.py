"""Manifests and layers of registries: each ends in a value or in :class:`UserError`, whatever there is."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.errors import UserError
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.layers import Layers
from enginewright_builder.sources.oci_manifest import find_manifest, layers_of

URI = "oci://registry.example/net:1"
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
                    max_leaves=8)
DIGEST = st.just("sha256:" + "0" * 64)
NOTES = st.dictionaries(st.sampled_from(["org.opencontainers.image.title", "io.deis.oras.content.unpack",
                                         "org.cncf.model.filepath"]), JSON)
LAYER = st.fixed_dictionaries({}, optional={"digest": DIGEST | JSON, "size": st.integers(-1, 1 << 70) | JSON,
                                            "mediaType": st.just("application/vnd.oci.image.layer.v1.tar") | JSON,
                                            "annotations": NOTES | JSON})
MANIFEST = st.fixed_dictionaries({}, optional={
    "layers": st.lists(LAYER | JSON, max_size=3) | JSON, "config": JSON, "mediaType": JSON,
    "manifests": st.lists(st.fixed_dictionaries({"digest": DIGEST | JSON, "platform": JSON}) | JSON, max_size=2)})
NAMES = st.sampled_from(["a", "a/b", "../a", "/a", ".wh.a", ".wh..wh..opq", "a/../../b", "\0", "a" * 300]) | st.text()
ENTRIES = st.lists(st.tuples(NAMES, st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE,
                                                     tarfile.CHRTYPE, tarfile.FIFOTYPE]), NAMES, st.binary(max_size=8)),
                   max_size=5)


class Answers:
    """A registry that has one manifest under every name."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def manifest(self, reference: str) -> dict[str, Any]:
        return self._found

    def corrupt(self, why: str) -> UserError:
        return UserError("SourceCorrupt", why)


@given(MANIFEST)
def test_manifests(manifest: dict[str, Any]) -> None:
    context = FetchContext(mounts={}, scratch=Path("/nowhere"))
    try:
        layers_of(find_manifest(Answers(manifest), "1", URI, context), URI, context)  # type: ignore[arg-type]
    except UserError:
        return


def packed(entries: list[tuple[str, bytes, str, bytes]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", errors="surrogatepass") as archive:
        for name, kind, link, content in entries:
            member = tarfile.TarInfo(name.replace("\0", "") or "x")
            member.type, member.linkname = kind, link.replace("\0", "")
            member.size = len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


@given(ENTRIES, st.data(), st.booleans(), st.booleans())
def test_layers(entries: list[tuple[str, bytes, str, bytes]], data: st.DataObject, changes: bool, zipped: bool) -> None:
    content = bytearray(packed(entries))
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    blob = gzip.compress(bytes(content)) if zipped else bytes(content)
    with tempfile.TemporaryDirectory() as folder:
        root, pool = Path(folder) / "in" / "root", Path(folder) / "in" / "pool"
        pool.mkdir(parents=True)
        (Path(folder) / "in" / "blob").write_bytes(blob)
        try:
            layers = Layers(pool, "", URI, FetchContext(mounts={}, scratch=pool, size_limit=1 << 20))
            layers.add_archive(Path(folder) / "in" / "blob", changes=changes)
            layers.lay_out(root)
        except UserError:
            pass
        assert [path.name for path in Path(folder).iterdir()] == ["in"]
        assert {path.name for path in (Path(folder) / "in").iterdir()} <= {"root", "pool", "blob"}
        assert not any(path.is_symlink() for path in root.rglob("*"))
