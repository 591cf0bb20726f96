"""The manifest of an engine, which a replica, the collector and the plugin read before they know who wrote it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from enginewright_builder.contract import ContractError, FileEntry, Manifest, Outcome
from enginewright_builder.engine_store import bucket as engines
from enginewright_builder.engine_store.folder import UntrustedError, check_signature
from enginewright_builder.engine_store.manifest import VerificationError, parse_manifest
from enginewright_builder.engine_store.signing import Keys

FINGERPRINT = "ab" * 32
DATA = b"weights"
ENTRY = FileEntry(sha256=hashlib.sha256(DATA).hexdigest(), bytes=len(DATA))
SOUND = Manifest(fingerprint=FINGERPRINT, created="2026-11-24T00:00:00Z", outcome=Outcome(kind="build", ok=True),
                 files={"model_repository/model/1/model.onnx": ENTRY})
DOCUMENT: dict[str, Any] = json.loads(SOUND.to_json())
KEYS = Keys(current=b"k" * 64)

# All examples share one temporary folder.
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.text(max_size=10), inner, max_size=3), max_leaves=8)
ODD = st.sampled_from(["..", ".", "", "a", "model.py", "manifest.json", "\0", "é", "x" * 300, "\ud800", "/"])
PARTS = ODD | st.text(max_size=8)
NAMES = st.lists(PARTS, max_size=4).map("/".join)
FILES = st.dictionaries(NAMES, st.fixed_dictionaries({
    "sha256": st.sampled_from([hashlib.sha256(DATA).hexdigest(), "../x", "", "0" * 64]) | st.text(max_size=8),
    "bytes": st.integers(-2, 10)}), max_size=4)


def encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A sound manifest with something broken in it, or cut, or with a byte exchanged."""
    document = json.loads(json.dumps(DOCUMENT))
    at = document
    for _ in range(draw(st.integers(0, 2))):
        inner = [value for value in at.values() if isinstance(value, dict) and value]
        if not inner:
            break
        at = draw(st.sampled_from(inner))
    key = draw(st.sampled_from(sorted(at)) | st.text(max_size=10))
    at[key] = draw(VALUES)
    data = bytearray(encoded(document))
    kind = draw(st.sampled_from(["whole", "cut", "exchanged"]))
    place = draw(st.integers(0, len(data) - 1))
    if kind == "cut":
        return bytes(data[:place])
    if kind == "exchanged":
        data[place] = draw(st.integers(0, 255))
    return bytes(data)


def lies_below(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and bool(path.parts) and "\0" not in name


@given(data=st.binary(max_size=200) | broken())
@example(data=b"[" * 100_000)
@example(data=b'{"version": ' + b"9" * 5000 + b"}")
@example(data=encoded({**DOCUMENT, "created": "\ud800"}))
@example(data=encoded(DOCUMENT).replace(b'"build_seconds": 0.0', b'"build_seconds": NaN'))
@example(data=encoded(DOCUMENT).replace(b'"build_seconds": 0.0', b'"build_seconds": 1e999'))
def test_a_manifest_is_read_or_refused(data: bytes) -> None:
    try:
        manifest = parse_manifest(data)
    except VerificationError:
        return
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert all(map(lies_below, manifest.files))


@given(files=FILES)
def test_no_name_leads_out_of_the_engine_and_no_digest_out_of_the_files(files: dict[str, Any]) -> None:
    try:
        manifest = Manifest.from_json(encoded({**DOCUMENT, "files": files}).decode())
    except ContractError:
        return
    assert all(map(lies_below, manifest.files))
    for entry in manifest.files.values():
        assert engines.blob_key(entry) == f"blobs/sha256/{int(entry.sha256, 16):064x}"


@given(data=broken())
def test_nothing_counts_without_the_key(data: bytes) -> None:
    with pytest.raises(UntrustedError):
        check_signature(data, FINGERPRINT, KEYS)


@given(place=st.integers(0), byte=st.integers(0, 255))
def test_nor_what_was_signed_with_one_byte_exchanged(place: int, byte: int) -> None:
    sound = KEYS.signed(SOUND).to_json().encode()
    check_signature(sound, FINGERPRINT, KEYS)
    data = bytearray(sound)
    data[place % len(data)] = byte
    if bytes(data) != sound:
        with pytest.raises(UntrustedError):
            check_signature(bytes(data), FINGERPRINT, KEYS)


class Planted:
    """A bucket in memory, as far as a replica reads it."""

    uri = "s3://engines"

    def __init__(self, manifest: bytes) -> None:
        self.manifest = manifest

    def read(self, key: str, most: int) -> bytes | None:
        return self.manifest[:most + 1]

    def download(self, key: str, size: int, target: Path) -> str | None:
        if size != len(DATA):
            return None
        target.write_bytes(DATA)
        return hashlib.sha256(DATA).hexdigest()


@SHARED
@given(data=broken() | FILES.map(lambda files: encoded({**DOCUMENT, "files": files})))
def test_a_replica_writes_nothing_beside_its_engine(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.getbasetemp() / "fuzzed-replica"
    folder = root / "pod" / "engine"
    with contextlib.suppress(VerificationError, OSError):
        engines.fetch_engine(Planted(data), "", folder)  # type: ignore[arg-type]
    written = {path for path in root.rglob("*") if not path.is_dir()}
    assert all(folder in path.parents for path in written)
