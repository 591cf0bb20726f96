"""Makes a URI local: one fetcher a URI scheme, then the content digest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from enginewright_builder.errors import UserError
from enginewright_builder.sources.base import FetchContext, Fetcher, unreadable
from enginewright_builder.sources.digest import content_digest
from enginewright_builder.sources.https import HttpsFetcher
from enginewright_builder.sources.hub import HubFetcher
from enginewright_builder.sources.local import FileFetcher, PlainPathFetcher, VolumeFetcher
from enginewright_builder.sources.object_store import ObjectStoreFetcher
from enginewright_builder.sources.oci import OciFetcher

FETCHERS: Sequence[Fetcher] = (VolumeFetcher(), HttpsFetcher(), ObjectStoreFetcher(), HubFetcher(), OciFetcher(),
                               FileFetcher(), PlainPathFetcher())

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def scheme_of(uri: str) -> str:
    match = _SCHEME.match(uri)
    return match.group(1).lower() if match else ""


def fetcher_for(uri: str, field: str = "spec.source.uri", fetchers: Sequence[Fetcher] = FETCHERS) -> Fetcher:
    """Raises :class:`UserError` ``SourceUriUnsupported`` naming the schemes there are."""
    scheme = scheme_of(uri)
    for fetcher in fetchers:
        if scheme in fetcher.schemes:
            return fetcher
    supported = ", ".join(f"{name}://" for fetcher in fetchers for name in fetcher.schemes if name not in ("", "http"))
    raise UserError("SourceUriUnsupported", f"{scheme}:// is not supported by this builder", field=field, value=uri,
                    remedy=f"use one of {supported}")


def fetch(uri: str, context: FetchContext) -> tuple[Path, str]:
    """Makes ``uri`` local, and returns the path with its content digest, checked against ``context.digest``.

    Raises :class:`UserError` ``DigestMismatch``, ``SourceNotFound`` where a file may not be read, or what the fetcher
    or ``context.check`` raises.
    """
    if not uri.strip():
        raise UserError("SourceUriInvalid", "no URI is given", field=context.field, value=uri,
                        remedy="write for example pvc://CLAIM/path")
    stated_field = context.field.removesuffix("uri") + "digest"
    if context.digest and not _DIGEST.fullmatch(context.digest):
        raise UserError("DigestInvalid", f"{context.digest!r} is not a digest", field=stated_field,
                        value=context.digest,
                        remedy="write sha256: and 64 lower-case hexadecimal digits")
    path = fetcher_for(uri, context.field).fetch(uri, context)
    try:
        # First: the digest of a graph takes a look into it.
        context.check(path)
        digest = content_digest(path, field=context.field)
    except PermissionError as error:
        raise unreadable(uri, error, context) from error
    if context.digest and digest != context.digest:
        raise UserError("DigestMismatch", f"{uri} has digest {digest}, not {context.digest}, which is stated or "
                        "was found when the source was resolved",
                        field=stated_field, value=context.digest,
                        remedy=f"if the content is the one you want, write {digest}")
    return path, digest
