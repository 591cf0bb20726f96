"""Signatures with a key of the releaser's: ECDSA on P-256, which openssl and cosign check."""

from __future__ import annotations

import base64
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from release import oci

Key = ec.EllipticCurvePrivateKey


class BadKeyError(ValueError):
    """The key cannot be used; the message says why."""


def load(path: Path, password: str) -> Key:
    """A PEM file.

    Raises:
        BadKeyError: it is missing, encrypted by another password, or of another kind.
    """
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password.encode() or None)
    except (OSError, ValueError, TypeError) as error:
        raise BadKeyError(f"RELEASE_KEY={path} cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise BadKeyError(f"RELEASE_KEY={path} is no ECDSA key on P-256; make one with: openssl genpkey -algorithm EC "
                     "-pkeyopt ec_paramgen_curve:P-256 -out release.key")
    return key


def signature(key: Key, content: bytes) -> str:
    """Base64 of the signature over the SHA-256 of ``content``: the same each time (RFC 6979)."""
    made = key.sign(content, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))
    return base64.b64encode(made).decode()


def public(key: Key) -> bytes:
    """PEM."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def envelope(key: Key, media_type: str, payload: bytes) -> bytes:
    """A DSSE envelope."""
    kind = media_type.encode()
    signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    return oci.dump({"payloadType": media_type, "payload": base64.b64encode(payload).decode(),
                     "signatures": [{"sig": signature(key, signed)}]}) + b"\n"
