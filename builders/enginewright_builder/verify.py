"""Is this engine whole? Checks the manifest and every digest before a server loads it. Standard library only, unless
the engine lies in a bucket.

``python3 -m enginewright_builder.verify DIR [--fingerprint FP] [--manifest-digest D] [--smoke-test DIR]`` is the
serving pod's init container: exit status 0 and one line when the engine is whole, 2 and the reason when it is not. The
line also becomes the container's termination message, which the operator puts into a condition. ``--smoke-test`` names
a folder that the server sees: the program that tries the server before it gets traffic is left there, with the answers
that the engine was proven to give, and the one that looks for the TensorRT and the GPU that it was built with.
``--model-control-key`` names a file in memory: a key that no other pod has is left there, for the server and for the
container that changes its batching.

``--from s3://BUCKET/PREFIX`` fetches the engine into DIR before it is checked. Where the bucket refuses or does not
answer the exit status is 3: that says nothing of the engine, and the container is to be started again.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from enginewright_builder import fits, smoke
from enginewright_builder.contract import (
    EXIT_TRANSIENT,
    MANIFEST_FILE,
    SMOKE_FILE,
    TERMINATION_MESSAGE_BYTES,
    ContractError,
    Manifest,
)

EXIT_DAMAGED = 2
TERMINATION_LOG = Path("/dev/termination-log")
READ_BYTES = 1 << 20
# What fits.py reads: of which TensorRT version and for which GPU the engine is.
FITS_FILE = "fits.json"
KEY_BYTES = 32


class VerificationError(ValueError):
    """The engine is not whole; the message says which file and why."""


def verify(folder: Path, fingerprint: str = "", *, manifest_digest: str = "", check_digests: bool = True) -> Manifest:
    """The manifest of an engine that is whole. Raises :class:`VerificationError`.

    Files that the manifest does not name are refused too: Triton would read a ``config.pbtxt`` or version put there
    later. Bytecode caches are passed over: a server that may write leaves them beside ``model.py``.
    """
    manifest = _read_manifest(folder)
    if manifest_digest:
        check_digest((folder / MANIFEST_FILE).read_bytes(), manifest_digest)
    check_manifest(manifest, fingerprint)
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*")
               if not path.is_dir() and path.parent.name != "__pycache__"}
    if foreign := sorted(present - set(manifest.files) - {MANIFEST_FILE}):
        raise VerificationError(f"{foreign[0]} is not in the manifest")
    for name, entry in sorted(manifest.files.items()):
        path = folder / name
        if path.is_symlink() or not path.is_file() or ".." in Path(name).parts:
            raise VerificationError(f"{name} is missing or not a plain file")
        size = path.stat().st_size
        if size != entry.bytes:
            raise VerificationError(f"{name} has {size} bytes, the manifest says {entry.bytes}")
        if check_digests and (digest := sha256_file(path)) != entry.sha256:
            raise VerificationError(f"{name} has digest sha256:{digest}, the manifest says sha256:{entry.sha256}")
    return manifest


def check_digest(manifest: bytes, wanted: str) -> None:
    if wanted and (found := f"sha256:{hashlib.sha256(manifest).hexdigest()}") != wanted:
        raise VerificationError(f"{MANIFEST_FILE} has digest {found}, the engine that was proven has {wanted}")


def check_manifest(manifest: Manifest, fingerprint: str) -> None:
    if fingerprint and manifest.fingerprint != fingerprint:
        raise VerificationError(f"{MANIFEST_FILE} is of engine {manifest.fingerprint}, wanted {fingerprint}")


def sha256_file(path: Path) -> str:
    """64 hex digits over the file's content."""
    with path.open("rb") as reader:
        return hashlib.file_digest(reader, "sha256").hexdigest()


def leave_smoke_test(folder: Path, target: Path, manifest: Manifest) -> None:
    """Copies the programs, and what the verified engine ``folder`` has for them: engines of older builders have less.
    Raises :class:`OSError`."""
    for program in (Path(smoke.__file__), Path(fits.__file__)):
        shutil.copyfile(program, target / program.name)
    (target / FITS_FILE).write_text(json.dumps(needs(manifest)), encoding="utf-8")
    if SMOKE_FILE in manifest.files:
        shutil.copyfile(folder / SMOKE_FILE, target / SMOKE_FILE)


def leave_key(target: Path) -> None:
    """A new one, a line of hexadecimal digits, that its owner alone may read. Raises :class:`OSError`."""
    target.unlink(missing_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with open(descriptor, "w", encoding="ascii") as writer:
        writer.write(f"{secrets.token_hex(KEY_BYTES)}\n")


def needs(manifest: Manifest) -> dict[str, str]:
    """``tensorrt``, where a plan is among the engine's parts, and ``device``, where the driver named the GPU that it
    was built on: a name without spaces merely repeats what was asked for."""
    engine = manifest.outcome.engine
    if engine is None or engine.device_class in ("", "cpu"):
        return {}
    plan = re.search(r"\btensorrt (\d[\d.]*)", engine.runtime_version)
    return {"tensorrt": plan[1] if plan else "", "device": engine.device if " " in engine.device else ""}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m enginewright_builder.verify", description=__doc__)
    parser.add_argument("directory", type=Path, help="<store>/<fingerprint>")
    parser.add_argument("--fingerprint", default="", help="refuse an engine of another fingerprint")
    parser.add_argument("--manifest-digest", default="", help="refuse a manifest of another digest, sha256:<hex>")
    parser.add_argument("--smoke-test", type=Path, help="leave the server's smoke test in this folder")
    parser.add_argument("--model-control-key", type=Path, help="leave a new key for the server's model control here")
    parser.add_argument("--from", dest="bucket", default="", metavar="URI", help="fetch the engine from this bucket")
    options = parser.parse_args(arguments)
    try:
        if options.bucket and (problem := _fetch(options)):
            _say(f"engine {options.directory.name} cannot be fetched: {problem}", sys.stderr)
            return EXIT_TRANSIENT
        manifest = verify(options.directory, options.fingerprint, manifest_digest=options.manifest_digest)
        if options.smoke_test:
            leave_smoke_test(options.directory, options.smoke_test, manifest)
        if options.model_control_key:
            leave_key(options.model_control_key)
    except (VerificationError, OSError) as error:
        _say(f"engine {options.directory} refused: {error}", sys.stderr)
        return EXIT_DAMAGED
    size = sum(entry.bytes for entry in manifest.files.values())
    _say(f"engine {manifest.fingerprint[:12]} is whole: {len(manifest.files)} files, {size:,} bytes", sys.stdout)
    return 0


def _fetch(options: argparse.Namespace) -> str:
    """Makes the engine local. Returns why that cannot be now; empty where it is done. Raises
    :class:`VerificationError` for an engine that is not there whole. The proven one that is here already stays: init
    containers run once more after a node's restart, and the bucket has no say in it."""
    with contextlib.suppress(VerificationError):
        if options.manifest_digest:
            verify(options.directory, options.fingerprint, manifest_digest=options.manifest_digest)
            return ""
    from enginewright_builder.bucket.client import Bucket
    from enginewright_builder.bucket.engines import fetch_engine
    from enginewright_builder.errors import BuilderError

    try:
        fetch_engine(Bucket(options.bucket), options.fingerprint, options.directory, options.manifest_digest)
    except BuilderError as error:
        return f"{error.reason}: {error.message}; {error.remedy}"
    except OSError as error:
        return f"{options.directory} cannot be written: {error}"
    return ""


def _read_manifest(folder: Path) -> Manifest:
    try:
        text = (folder / MANIFEST_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise VerificationError(f"{MANIFEST_FILE} cannot be read: {error}") from error
    try:
        return Manifest.from_json(text)
    except ContractError as error:
        raise VerificationError(f"{MANIFEST_FILE} is not valid: {error}") from error


def _say(line: str, stream: object) -> None:
    print(line, file=stream)  # type: ignore[call-overload]
    path = Path(os.environ.get("TERMINATION_LOG", str(TERMINATION_LOG)))
    if path.exists():
        with contextlib.suppress(OSError):
            path.write_bytes(line.encode()[:TERMINATION_MESSAGE_BYTES])


if __name__ == "__main__":
    sys.exit(main())
