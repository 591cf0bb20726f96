"""``python3 -m enginewright_builder.show STORE FINGERPRINT DIGEST FILE``: a file beside an engine, for who may read the
log of this pod.

STORE is the engine's folder on a volume, or the bucket. Two lines of base64 are printed, each of what zlib packs: the
manifest and the file, after the manifest was held against DIGEST and the file against the manifest. Exit status 2 and
the reason where they are not there whole. Standard library only, unless the engine lies in a bucket.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from enginewright_builder.contract import Manifest
from enginewright_builder.engine_store import bucket
from enginewright_builder.engine_store.manifest import (
    EXIT_DAMAGED,
    VerificationError,
    expect,
    parse_manifest,
    plain_file,
    read_manifest,
)
from enginewright_builder.errors import BuilderError
from enginewright_builder.objectstore.bucket import Bucket


def show(store: str, fingerprint: str, manifest_digest: str, name: str) -> tuple[bytes, bytes]:
    """The manifest and the file. Raises :class:`VerificationError`, :class:`OSError`, and what a bucket does."""
    if "://" in store:
        place = Bucket(store)
        data = bucket.read_manifest(place, fingerprint, manifest_digest)
        manifest = parse_manifest(data, fingerprint, manifest_digest)
        content = bucket.read_blob(place, manifest, name)
    else:
        data = read_manifest(Path(store))
        manifest = parse_manifest(data, fingerprint, manifest_digest)
        content = _on_volume(Path(store), manifest, name)
    digest = hashlib.sha256(content).hexdigest() if content is not None else None
    if content is None or name not in manifest.files:
        raise VerificationError(f"{name} of engine {fingerprint[:12]} is not in {store}")
    expect(name, manifest.files[name], digest)
    return data, content


def _on_volume(folder: Path, manifest: Manifest, name: str) -> bytes | None:
    if name not in manifest.files:
        return None
    with plain_file(folder / name) as reader:
        return reader.read(manifest.files[name].bytes + 1)


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        shown = show(*words)
    except (VerificationError, BuilderError, OSError) as error:
        print(error, file=sys.stderr)
        return EXIT_DAMAGED
    for part in shown:
        print(base64.b64encode(zlib.compress(part, 9)).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
