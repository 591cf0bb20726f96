"""The engine store: immutable folders, one a fingerprint, complete exactly when their manifest is there."""

from __future__ import annotations

from pathlib import Path

from enginewright_builder.contract import Manifest, Outcome


def lookup(store_path: Path, fingerprint: str, *, check_digests: bool = True) -> Manifest | None:
    """The engine's manifest, or None when the store has no complete engine of this fingerprint.

    A folder without a manifest is absent. Raises :class:`UserError` ``StoreMissing`` when the store itself is not there,
    :class:`TransientError` ``EngineCorrupt`` when a file does not have its digest.
    """
    raise NotImplementedError


def publish(staging: Path, store_path: Path, fingerprint: str, *, model_name: str, outcome: Outcome) -> Manifest:
    """Publishes all files below ``staging`` as ``<store>/<fingerprint>/`` and returns the manifest that is now there.

    All or nothing for a reader at any time. When someone else published this fingerprint first, theirs is verified and
    returned. ``outcome.manifest_digest`` is left empty inside the manifest (it cannot hold its own digest); take it from
    :func:`manifest_digest`. Raises :class:`UserError` ``StoreMissing``, ``StoreReadOnly`` or ``StoreFull``.
    """
    raise NotImplementedError


def check_writable(store_path: Path, need_bytes: int = 0) -> None:
    """Before work is spent: raises :class:`UserError` ``StoreMissing``, ``StoreReadOnly`` or ``StoreFull``."""
    raise NotImplementedError


def manifest_digest(manifest: Manifest) -> str:
    """``sha256:<hex>`` of the manifest file as it stands in the store."""
    raise NotImplementedError
