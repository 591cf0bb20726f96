"""Keys, and models signed with them as ``model_signing`` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


def new_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Writes ``path``.key and ``path``.pub."""
    key = ec.generate_private_key(ec.SECP256R1())
    path.with_suffix(".key").write_bytes(key.private_bytes(PEM, PKCS8, serialization.NoEncryption()))
    path.with_suffix(".pub").write_bytes(
        key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    return key


def signer(signature: Path) -> Any:
    """Of all but the signature itself. The library has no types."""
    from model_signing import hashing, signing  # half a second: not while tests are collected

    made: Any = signing
    rules: Any = hashing
    return made.Config().set_hashing_config(rules.Config().set_ignored_paths(paths=[signature], ignore_git_paths=True))


def sign(model: Path, signature: Path, key: Path) -> None:
    signer(signature).use_elliptic_key_signer(private_key=key).sign(model, signature)
