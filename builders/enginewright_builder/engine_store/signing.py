"""What a store holds counts because a build Job of this namespace made it: HMAC-SHA256 with a key that only build Jobs
mount (docs/adr/0026-signed-engines.md). Standard library only.

A message is signed together with what it is for, so that nothing that was signed for one purpose, or under one name,
counts for another.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.contract import SIGNING_KEY, SIGNING_KEY_PREVIOUS, SIGNING_SECRET, Manifest, ManifestSignature
from enginewright_builder.errors import TransientError, UserError

# Of a key in the Secret. The operator makes 64 hexadecimal digits: 32 random bytes.
LEAST_KEY_BYTES = 32
_MANIFEST = "manifest"


@dataclass(frozen=True, kw_only=True, repr=False)
class Keys:
    """``current`` signs and verifies, ``previous`` verifies only; empty where there is none."""

    current: bytes
    previous: bytes = b""

    def mac(self, purpose: str, message: bytes) -> str:
        """64 hex digits."""
        return _mac(self.current, purpose, message)

    def verifies(self, purpose: str, message: bytes, mac: str) -> bool:
        return any(_same(_mac(key, purpose, message), mac) for key in (self.current, self.previous) if key)

    def signed(self, manifest: Manifest) -> Manifest:
        return dataclasses.replace(manifest, signature=_signature(self.current, manifest))

    def problem(self, manifest: Manifest, data: bytes) -> str:
        """Why the manifest that was read as the bytes ``data`` does not count; empty where a build Job with one of
        these keys wrote just them."""
        if manifest.signature is None:
            return "its manifest has no signature"
        ours = (_signature(key, manifest) for key in (self.current, self.previous) if key)
        if not any(_same(one.mac, manifest.signature.mac) and one.key == manifest.signature.key for one in ours):
            return f"its manifest is not signed with a key of Secret {SIGNING_SECRET} of this namespace"
        return "" if data == manifest.to_json().encode() else "its manifest is not written as a build Job writes it"


def _signature(key: bytes, manifest: Manifest) -> ManifestSignature:
    body = dataclasses.replace(manifest, signature=None).to_json().encode()
    return ManifestSignature(key=hashlib.sha256(key).hexdigest()[:16], mac=_mac(key, _MANIFEST, body))


def _same(mac: str, other: str) -> bool:
    """In a time that tells nothing of where they differ."""
    return hmac.compare_digest(mac.encode(), other.encode(errors="replace"))


def _mac(key: bytes, purpose: str, message: bytes) -> str:
    return hmac.new(key, purpose.encode() + b"\n" + message, hashlib.sha256).hexdigest()


def read_keys(folder: str, secret: str = SIGNING_SECRET) -> Keys | None:
    """The keys in the mounted Secret ``secret``; None where no folder is given: then the store is trusted as it is.
    Raises :class:`TransientError` ``SigningKeyMissing`` and :class:`UserError` ``SigningKeyInvalid``."""
    if not folder:
        return None
    current = _key(Path(folder), SIGNING_KEY, secret)
    if not current:
        raise TransientError(
            "SigningKeyMissing", f"Secret {secret} is not there, or has no entry {SIGNING_KEY}",
            field=secret, remedy="the operator makes the Secret before the next Job; where it is there without "
            "that entry, add the entry or delete the Secret")
    return Keys(current=current, previous=_key(Path(folder), SIGNING_KEY_PREVIOUS, secret))


def _key(folder: Path, entry: str, secret: str) -> bytes:
    """Entries of a Secret that was made from files end with a line break."""
    try:
        key = (folder / entry).read_bytes().strip()
    except FileNotFoundError:
        return b""
    if 0 < len(key) < LEAST_KEY_BYTES:
        raise UserError("SigningKeyInvalid", f"entry {entry} of Secret {secret} is a key of {len(key)} bytes",
                        field=secret, value=f"{entry}, which is not shown",
                        remedy=f"write at least {LEAST_KEY_BYTES} bytes, as `openssl rand -hex 32` prints them, or "
                               "delete the Secret: the operator then makes a key")
    return key
