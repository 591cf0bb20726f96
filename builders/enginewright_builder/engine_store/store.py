"""The store of a request: a folder of a volume, or a bucket that is used through a folder of the pod's own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from enginewright_builder.contract import BuildRequest, Manifest, Outcome
from enginewright_builder.engine_store import bucket, folder, folder_gc
from enginewright_builder.engine_store.manifest import VerificationError
from enginewright_builder.engine_store.signing import Keys, read_keys
from enginewright_builder.errors import TransientError
from enginewright_builder.objectstore.bucket import Bucket

# Seconds between tries to publish what a device has worked for, where the bucket does not answer: another pod would
# build it all again.
WAITS = (5.0, 15.0, 40.0, 60.0, 60.0)


class EngineStore(Protocol):
    """Raises :class:`UserError` and :class:`TransientError` as :mod:`enginewright_builder.engine_store.folder` does."""

    def holds(self, fingerprint: str) -> bool: ...

    def check_writable(self, need_bytes: int) -> None: ...

    def mark_used(self, fingerprint: str) -> None: ...

    def lookup(self, fingerprint: str) -> Manifest | None: ...

    def publish(self, staging: Path, fingerprint: str, *, outcome: Outcome) -> Manifest: ...

    def bring_timings(self) -> None:
        """Before a build: what TensorRT has measured of its kernels elsewhere. Never fails a build."""
        ...

    def keep_timings(self) -> None: ...


def _silent(note: str) -> None:
    """Discards notes."""


def of(request: BuildRequest, note: Callable[[str], None] = _silent) -> EngineStore:
    """Raises :class:`UserError` ``CredentialsInvalid`` and ``SigningKeyInvalid``, and :class:`TransientError`
    ``SigningKeyMissing``."""
    keys = read_keys(request.signing_keys)
    path = Path(request.store_path)
    if request.bucket is None:
        return FolderStore(path, keys, note)
    return BucketStore(Bucket(request.bucket.uri), path, check_digests=request.bucket.check_digests, note=note,
                       keys=keys)


class FolderStore:
    def __init__(self, path: Path, keys: Keys | None = None, note: Callable[[str], None] = _silent) -> None:
        self.path, self._keys, self._note = path, keys, note

    def holds(self, fingerprint: str) -> bool:
        return folder.holds(self.path, fingerprint, self._keys)

    def check_writable(self, need_bytes: int) -> None:
        folder.check_writable(self.path, need_bytes)

    def mark_used(self, fingerprint: str) -> None:
        folder_gc.mark_used(self.path, fingerprint)

    def lookup(self, fingerprint: str) -> Manifest | None:
        return folder.lookup(self.path, fingerprint, keys=self._keys, note=self._note)

    def publish(self, staging: Path, fingerprint: str, *, outcome: Outcome) -> Manifest:
        return folder.publish(staging, self.path, fingerprint, outcome=outcome, keys=self._keys)

    def bring_timings(self) -> None:
        """They lie there."""

    def keep_timings(self) -> None:
        """They lie there."""


class BucketStore:
    """``path`` is a folder of this pod, in which an engine is put together before it is uploaded."""

    def __init__(self, bucket: Bucket, path: Path, *, check_digests: bool = False,
                 note: Callable[[str], None] = _silent, keys: Keys | None = None) -> None:
        self._bucket, self._path, self._note, self._keys = bucket, path, note, keys
        self._scratch = path if check_digests else None

    def holds(self, fingerprint: str) -> bool:
        return bucket.holds(self._bucket, fingerprint, self._keys)

    def check_writable(self, need_bytes: int) -> None:
        """There, with a right to write and to read, and with conditional writes, without which of two builds that
        publish at once neither would know; the room in a bucket cannot be asked for. Raises :class:`UserError`
        ``ConditionalWritesIgnored``, too."""
        folder.check_writable(self._path, need_bytes)
        bucket.check_conditions(self._bucket)

    def mark_used(self, fingerprint: str) -> None:
        bucket.mark_used(self._bucket, fingerprint)

    def lookup(self, fingerprint: str) -> Manifest | None:
        """One that is damaged, or does not count, is reported and built: publishing writes over it."""
        try:
            return bucket.look_up(self._bucket, fingerprint, self._scratch, self._keys)
        except folder.UntrustedError as error:
            self._note(f"engine {fingerprint[:12]} in {self._bucket.uri} does not count, and is built: {error}")
        except VerificationError as error:
            self._note(f"engine {fingerprint[:12]} in {self._bucket.uri} is damaged, and is built again: {error}")
        return None

    def publish(self, staging: Path, fingerprint: str, *, outcome: Outcome) -> Manifest:
        folder.publish(staging, self._path, fingerprint, outcome=outcome, keys=self._keys)
        for wait in WAITS:
            try:
                return self._publish(fingerprint)
            except TransientError as error:
                if error.reason != "StoreUnreachable":
                    raise
                self._note(f"publishing is tried again in {wait:g} s: {error}")
                time.sleep(wait)
        return self._publish(fingerprint)

    def _publish(self, fingerprint: str) -> Manifest:
        with self._corrupt(fingerprint):
            return bucket.publish(self._bucket, self._path / fingerprint, fingerprint, self._scratch, self._keys)

    def bring_timings(self) -> None:
        bucket.pull_timing_caches(self._bucket, self._path / folder.TIMING_CACHES, self._note)

    def keep_timings(self) -> None:
        bucket.push_timing_caches(self._bucket, self._path / folder.TIMING_CACHES, self._note)

    @contextlib.contextmanager
    def _corrupt(self, fingerprint: str) -> Iterator[None]:
        try:
            yield
        except VerificationError as error:
            what = f"engine {fingerprint[:12]} in {self._bucket.uri} is damaged: {error}"
            raise TransientError("EngineCorrupt", what, field="spec.store.uri", value=self._bucket.uri,
                                 remedy="it is built again; find out who else writes to the bucket") from error
