"""Is this engine whole? Checks the manifest and every digest before a server loads it. Standard library only, unless
the engine lies in a bucket.

``python3 -m enginewright_builder.verify DIR --from STORE [--fingerprint FP] [--manifest-digest D] [--smoke-test DIR]``
is the serving pod's init container: exit status 0 and one line when the engine is whole, 2 and the reason when it is
not. The line also becomes the container's termination message, which the operator puts into a condition.
``--smoke-test`` names a folder that the server sees: the program that tries the server before it gets traffic is left
there, with the answers that the engine was proven to give, and the one that looks for the TensorRT and the GPU that it
was built with. ``--model-control-key`` names a file in memory: a key that no other pod has is left there, for the
server and for the container that changes its batching.

``--from`` names the engine's folder on a volume, or the bucket ``s3://BUCKET/PREFIX``. The engine is copied from there
into DIR, which is the pod's own: the files of the manifest and no others, each hashed as it is written, so that who
changes the store afterwards changes nothing that this pod serves. Where it cannot be copied (the bucket refuses or does
not answer, DIR is full) the exit status is 3: that says nothing of the engine, and the container is to be started
again. Without ``--from`` the engine in DIR is checked where it lies.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from enginewright_builder.contract import (
    EXIT_TRANSIENT,
    MANIFEST_BYTES,
    MANIFEST_FILE,
    SMOKE_FILE,
    TERMINATION_MESSAGE_BYTES,
    ContractError,
    FileEntry,
    Manifest,
)
from enginewright_builder.pod import fits, smoke

EXIT_DAMAGED = 2
TERMINATION_LOG = Path("/dev/termination-log")
READ_BYTES = 1 << 20
# What fits.py reads: of which TensorRT version and for which GPU the engine is.
FITS_FILE = "fits.json"
KEY_BYTES = 32


class VerificationError(ValueError):
    """The engine is not whole; the message says which file and why."""


class UnreachableError(Exception):
    """The engine cannot be made local now, which says nothing of it."""


# Writes a file of the engine to the path, and returns its 64 hex digits; None where it is not there or not of its size.
Get = Callable[[str, FileEntry, Path], str | None]


def verify(folder: Path, fingerprint: str = "", *, manifest_digest: str = "", check_digests: bool = True,
           bytecode: bool = False) -> Manifest:
    """The manifest of an engine that is whole. Raises :class:`VerificationError`, and :class:`OSError`.

    Files that the manifest does not name are refused: Triton would read a ``config.pbtxt`` or version put there later,
    and Python bytecode beside ``model.py`` runs in its place. With ``bytecode`` caches are passed over: a server that a
    person starts on a folder of their own leaves them there.
    """
    manifest = parse_manifest(read_manifest(folder), fingerprint, manifest_digest)
    refuse_foreign(folder, manifest, bytecode=bytecode)
    for name, entry in sorted(manifest.files.items()):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise VerificationError(f"{name} is missing or not a plain file")
        size = path.stat().st_size
        if size != entry.bytes:
            raise VerificationError(f"{name} has {size} bytes, the manifest says {entry.bytes}")
        if check_digests:
            expect(name, entry, sha256_file(path))
    return manifest


def read_manifest(folder: Path) -> bytes:
    """The bytes of the manifest. Raises :class:`VerificationError`."""
    try:
        with plain_file(folder / MANIFEST_FILE) as reader:
            data = reader.read(MANIFEST_BYTES + 1)
    except OSError as error:
        raise VerificationError(f"{MANIFEST_FILE} cannot be read: {error}") from error
    return data


def parse_manifest(data: bytes, fingerprint: str = "", manifest_digest: str = "") -> Manifest:
    """The manifest that these bytes are; with a digest only if they have it, and before they are parsed. Raises
    :class:`VerificationError`."""
    if manifest_digest and (found := f"sha256:{hashlib.sha256(data).hexdigest()}") != manifest_digest:
        raise VerificationError(f"{MANIFEST_FILE} has digest {found}, the engine that was proven has {manifest_digest}")
    if len(data) > MANIFEST_BYTES:
        raise VerificationError(f"{MANIFEST_FILE} is not valid: it has more than {MANIFEST_BYTES:,} bytes")
    try:
        manifest = Manifest.from_json(data.decode())
    except (ContractError, UnicodeDecodeError) as error:
        raise VerificationError(f"{MANIFEST_FILE} is not valid: {error}") from error
    if fingerprint and manifest.fingerprint != fingerprint:
        raise VerificationError(f"{MANIFEST_FILE} is of engine {manifest.fingerprint[:64]}, wanted {fingerprint}")
    return manifest


def refuse_foreign(folder: Path, manifest: Manifest, *, bytecode: bool = False) -> None:
    """Raises :class:`VerificationError` for the first file or link below ``folder`` that the manifest does not name."""
    try:
        for path in _files(folder):
            name = path.relative_to(folder).as_posix()
            cache = bytecode and path.parent.name == "__pycache__"
            if name not in manifest.files and name != MANIFEST_FILE and not cache:
                raise VerificationError(f"{name} is not in the manifest")
    except OSError as error:
        raise VerificationError(f"the engine's folder cannot be read: {error}") from error


def make_local(data: bytes, fingerprint: str, manifest_digest: str, folder: Path, get: Get) -> Manifest:
    """``folder`` then holds the files that the manifest ``data`` names, each as it says, and no others. What an earlier
    try left there whole stays. Raises :class:`VerificationError`, and :class:`OSError` of ``folder``."""
    manifest = parse_manifest(data, fingerprint, manifest_digest)
    folder.mkdir(parents=True, exist_ok=True)
    for path in _files(folder):
        if path.relative_to(folder).as_posix() not in manifest.files:
            path.unlink()
    for name, entry in sorted(manifest.files.items()):
        target = folder / name
        if target.is_file() and target.stat().st_size == entry.bytes and sha256_file(target) == entry.sha256:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        expect(name, entry, get(name, entry, target))
    (folder / MANIFEST_FILE).write_bytes(data)
    return manifest


def copy_engine(source: Path, fingerprint: str, folder: Path, manifest_digest: str = "") -> Manifest:
    """Makes the engine that lies in the folder ``source`` local. Raises as :func:`make_local` does."""
    data = read_manifest(source)
    refuse_foreign(source, parse_manifest(data, fingerprint, manifest_digest))
    return make_local(data, fingerprint, manifest_digest, folder,
                      lambda name, entry, target: _copy(source / name, entry, target))


def expect(name: str, entry: FileEntry, digest: str | None) -> None:
    """Raises :class:`VerificationError` unless the file was there with its size and has its digest."""
    if digest is None:
        raise VerificationError(f"{name} is missing, or has not the {entry.bytes} bytes that the manifest says")
    if digest != entry.sha256:
        raise VerificationError(f"{name} has digest sha256:{digest}, the manifest says sha256:{entry.sha256}")


def _copy(source: Path, entry: FileEntry, target: Path) -> str | None:
    """A :data:`Get` for a file of a volume; no more is read than the manifest says."""
    digest, left = hashlib.sha256(), entry.bytes
    with contextlib.ExitStack() as files:
        try:
            reader = files.enter_context(plain_file(source))
        except OSError:
            return None
        writer = files.enter_context(target.open("wb"))
        while left:
            try:
                chunk = reader.read(min(left, READ_BYTES))
            except OSError as error:
                raise VerificationError(f"{target.name} cannot be read: {error}") from error
            if not chunk:
                return None
            digest.update(chunk)
            writer.write(chunk)
            left -= len(chunk)
        return None if reader.read(1) else digest.hexdigest()


def plain_file(path: Path) -> BinaryIO:
    """Opened for reading; nothing but a plain file: a pipe would never end. Raises :class:`OSError`."""
    reader = open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(reader.fileno()).st_mode):
        reader.close()
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return reader


def _files(folder: Path) -> Iterator[Path]:
    """All that is no folder, links to folders among them. Raises :class:`OSError` for a folder that cannot be read."""
    def fail(error: OSError) -> None:
        raise error

    for root, folders, files in os.walk(folder, onerror=fail):
        yield from (Path(root, name) for name in files)
        yield from (path for name in folders if (path := Path(root, name)).is_symlink())


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


def needs(manifest: Manifest) -> dict[str, object]:
    """``tensorrt``, where a plan is among the engine's parts; ``device`` and ``profile``, where the driver named the
    GPU that it was built on: a name without spaces merely repeats what was asked for; and ``memory_bytes``."""
    engine = manifest.outcome.engine
    if engine is None or engine.device_class in ("", "cpu"):
        return {}
    plan = re.search(r"\btensorrt (\d[\d.]*)", engine.runtime_version)
    seen = " " in engine.device
    profile = engine.device_class.partition("/")[2] or fits.WHOLE
    return {"tensorrt": plan[1] if plan else "", "device": engine.device if seen else "",
            "profile": profile if seen else "", "memory_bytes": engine.memory_bytes if engine.device_count == 1 else 0}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m enginewright_builder.verify", description=__doc__)
    parser.add_argument("directory", type=Path, help="where the engine is, or is to be")
    parser.add_argument("--fingerprint", default="", help="refuse an engine of another fingerprint")
    parser.add_argument("--manifest-digest", default="", help="refuse a manifest of another digest, sha256:<hex>")
    parser.add_argument("--smoke-test", type=Path, help="leave the server's smoke test in this folder")
    parser.add_argument("--model-control-key", type=Path, help="leave a new key for the server's model control here")
    parser.add_argument("--from", dest="store", default="", metavar="STORE",
                        help="copy the engine from there first: its folder on a volume, or s3://BUCKET/PREFIX")
    options = parser.parse_args(arguments)
    try:
        manifest = _checked(options)
        if options.smoke_test:
            leave_smoke_test(options.directory, options.smoke_test, manifest)
        if options.model_control_key:
            leave_key(options.model_control_key)
    except UnreachableError as error:
        _say(f"engine {options.directory.name} cannot be fetched: {error}", sys.stderr)
        return EXIT_TRANSIENT
    except (VerificationError, OSError) as error:
        _say(f"engine {options.directory} refused: {error}", sys.stderr)
        return EXIT_DAMAGED
    size = sum(entry.bytes for entry in manifest.files.values())
    _say(f"engine {manifest.fingerprint[:12]} is whole: {len(manifest.files)} files, {size:,} bytes", sys.stdout)
    return 0


def _checked(options: argparse.Namespace) -> Manifest:
    """The engine that DIR holds now. Raises :class:`VerificationError`, :class:`OSError` and
    :class:`UnreachableError`. The proven one that is in the pod already stays: init containers run once more after a
    node's restart, and the store has no say in it."""
    if not options.store:
        return verify(options.directory, options.fingerprint, manifest_digest=options.manifest_digest)
    if options.manifest_digest and options.directory.exists():
        with contextlib.suppress(VerificationError):
            return verify(options.directory, options.fingerprint, manifest_digest=options.manifest_digest)
    try:
        if "://" in options.store:
            return _fetched(options)
        return copy_engine(Path(options.store), options.fingerprint, options.directory, options.manifest_digest)
    except OSError as error:
        raise UnreachableError(f"{options.directory} cannot be written: {error}") from error


def _fetched(options: argparse.Namespace) -> Manifest:
    from enginewright_builder.engine_store.bucket import fetch_engine
    from enginewright_builder.errors import BuilderError
    from enginewright_builder.objectstore.bucket import Bucket

    try:
        return fetch_engine(Bucket(options.store), options.fingerprint, options.directory, options.manifest_digest)
    except BuilderError as error:
        raise UnreachableError(f"{error.reason}: {error.message}; {error.remedy}") from error


def _say(line: str, stream: object) -> None:
    print(line, file=stream)  # type: ignore[call-overload]
    path = Path(os.environ.get("TERMINATION_LOG", str(TERMINATION_LOG)))
    if path.exists():
        with contextlib.suppress(OSError):
            path.write_bytes(line.encode()[:TERMINATION_MESSAGE_BYTES])


if __name__ == "__main__":
    sys.exit(main())
