"""Is this engine whole? Checks the manifest and every digest before a server loads it. Standard library only, unless
the engine lies in a bucket.

``python3 -m enginewright_builder.verify DIR --from STORE [--fingerprint FP] [--manifest-digest D] [--smoke-test DIR]``
is the serving pod's init container: exit status 0 and one line when the engine is whole, 2 and the reason when it is
not. The line also becomes the container's termination message, which the operator puts into a condition.
``--smoke-test`` names a folder that the server sees: the program that tries the server before it gets traffic is left
there, with the answers that the engine was proven to give, the one that looks for the TensorRT and the GPU that it was
built with, and the one by which each answer of a language model ends its connection.

``--queue`` is a queue policy as JSON: then the engine's ``config.pbtxt`` is left there as well, with that policy, for
the server to read in place of the engine's own. The engine stays as it was proven.

``--response-cache`` is the name that clients know the model by: then a folder ``front`` is left there as well, a model
of that name for the server, which answers repeated requests from a cache and asks the engine for all others. Where a
cache could give wrong answers of this engine the exit status is 4.

``--from`` names the engine's folder on a volume, or the bucket ``s3://BUCKET/PREFIX``. The engine is copied from there
into DIR, which is the pod's own: the files of the manifest and no others, each hashed as it is written, so that who
changes the store afterwards changes nothing that this pod serves. Where it cannot be copied (the bucket refuses or does
not answer, DIR is full) the exit status is 3: that says nothing of the engine, and the container is to be started
again. Without ``--from`` the engine in DIR is checked where it lies.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from enginewright_builder import pod
from enginewright_builder.contract import (
    COMPUTED,
    EXIT_TRANSIENT,
    EXIT_UNCACHEABLE,
    MODEL_FOLDER,
    MODEL_REPOSITORY,
    SMOKE_FILE,
    TERMINATION_MESSAGE_BYTES,
    Manifest,
    QueueRequest,
)
from enginewright_builder.copied import copy_modules
from enginewright_builder.engine_store.bucket import fetch_engine
from enginewright_builder.engine_store.manifest import EXIT_DAMAGED, VerificationError, copy_engine, verify
from enginewright_builder.errors import BuilderError
from enginewright_builder.objectstore.bucket import Bucket
from enginewright_builder.pod import device, fits, libraries, renewing, smoke
from enginewright_builder.queue_policy import CONFIG_FILE, UnreadableConfigError, with_queue
from enginewright_builder.response_cache import FRONT, UncacheableError, front
from enginewright_builder.termination import TERMINATION_LOG

# What fits.py reads: of which TensorRT version and for which GPU the engine is.
FITS_FILE = "fits.json"


class UnreachableError(Exception):
    """The engine cannot be made local now, which says nothing of it."""


def leave_smoke_test(folder: Path, target: Path, manifest: Manifest) -> None:
    """Copies the programs, and what the verified engine ``folder`` has for them: engines of older builders have less.
    Raises :class:`OSError`."""
    for program in (Path(smoke.__file__), Path(fits.__file__), Path(renewing.__file__)):
        shutil.copyfile(program, target / program.name)
    copy_modules(target, (pod, device, libraries))
    (target / FITS_FILE).write_text(json.dumps(needs(manifest)), encoding="utf-8")
    if SMOKE_FILE in manifest.files:
        shutil.copyfile(folder / SMOKE_FILE, target / SMOKE_FILE)


def leave_config(folder: Path, target: Path, queue: QueueRequest) -> None:
    """Raises :class:`OSError` and :class:`UnreadableConfigError`."""
    (target / CONFIG_FILE).write_text(with_queue(_published(folder), queue), encoding="utf-8")


def leave_front(folder: Path, target: Path, model: str) -> None:
    """Triton asks for a folder of each version, also where nothing is in it. Raises :class:`OSError`,
    :class:`UnreadableConfigError` and :class:`UncacheableError`."""
    config = front(_published(folder), model + COMPUTED)
    (target / FRONT / "1").mkdir(parents=True, exist_ok=True)
    (target / FRONT / CONFIG_FILE).write_text(config, encoding="utf-8")


def _published(folder: Path) -> str:
    return (folder / MODEL_REPOSITORY / MODEL_FOLDER / CONFIG_FILE).read_text(encoding="utf-8")


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
    parser.add_argument("directory", type=Path, help="folder of the engine")
    parser.add_argument("--fingerprint", default="", help="refuse an engine of another fingerprint")
    parser.add_argument("--manifest-digest", default="", help="refuse a manifest of another digest, sha256:<hex>")
    parser.add_argument("--smoke-test", type=Path, help="leave the server's smoke test in this folder")
    parser.add_argument("--queue", type=QueueRequest.from_json, metavar="JSON",
                        help="leave config.pbtxt with this queue policy beside the smoke test")
    parser.add_argument("--response-cache", default="", metavar="MODEL",
                        help="leave the model that answers repeated requests of this one beside the smoke test")
    parser.add_argument("--from", dest="store", default="", metavar="STORE",
                        help="copy the engine from there first: its folder on a volume, or s3://BUCKET/PREFIX")
    options = parser.parse_args(arguments)
    try:
        manifest = _checked(options)
        if options.smoke_test:
            leave_smoke_test(options.directory, options.smoke_test, manifest)
            if options.queue:
                leave_config(options.directory, options.smoke_test, options.queue)
            if options.response_cache:
                leave_front(options.directory, options.smoke_test, options.response_cache)
    except UnreachableError as error:
        _report(f"engine {options.directory.name} cannot be fetched: {error}", sys.stderr)
        return EXIT_TRANSIENT
    except UncacheableError as error:
        _report(f"spec.serving.responseCache {error}", sys.stderr)
        return EXIT_UNCACHEABLE
    except (VerificationError, UnreadableConfigError, OSError) as error:
        _report(f"engine {options.directory} refused: {error}", sys.stderr)
        return EXIT_DAMAGED
    size = sum(entry.bytes for entry in manifest.files.values())
    _report(f"engine {manifest.fingerprint[:12]} is whole: {len(manifest.files)} files, {size:,} bytes", sys.stdout)
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
    try:
        return fetch_engine(Bucket(options.store), options.fingerprint, options.directory, options.manifest_digest)
    except BuilderError as error:
        raise UnreachableError(f"{error.reason}: {error.message}; {error.remedy}") from error


def _report(line: str, stream: object) -> None:
    print(line, file=stream)  # type: ignore[call-overload]
    path = Path(os.environ.get("TERMINATION_LOG", TERMINATION_LOG))
    if path.exists():
        with contextlib.suppress(OSError):
            path.write_bytes(line.encode()[:TERMINATION_MESSAGE_BYTES])


if __name__ == "__main__":
    sys.exit(main())
