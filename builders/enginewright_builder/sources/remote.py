"""What sources in buckets, on hubs and in registries have in common: names that become files, and credentials."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from enginewright_builder.errors import UserError
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.formats import METRIC_FILE, PICKLE_REMEDY, PICKLE_SUFFIXES
from enginewright_builder.sources.saved_model import GRAPH

# Of one source: a listing that never ends must not fill the memory.
MOST_FILES = 100_000
# What a build can begin from.
_MODELS = frozenset({".safetensors", ".onnx", ".pt2", ".pt", ".ts", ".keras", ".mar"})
PICKLES = PICKLE_SUFFIXES - {".pt"}  # which may be TorchScript: its content tells
_VARIABLES = ("AWS_", "GOOGLE_", "HF_", "REGISTRY_")
_CREDENTIALS = "spec.source.secretRef"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_near(host: str) -> bool:
    """Whether it is this machine, or an address that ends at its own network card, as those of the clouds' services
    for credentials do. A name that leads there is not seen: those services have no certificate for it."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return is_loopback(host)
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_link_local or mapped.is_unspecified)


def check_near(start: str, following: str, uri: str, context: FetchContext) -> None:
    """Who answers at the address ``start`` names no service of this machine or of the node's, which would answer to the
    build Job alone. Raises :class:`UserError` ``SourceUriInvalid``."""
    if is_near(urlsplit(following).hostname or "") and not is_near(urlsplit(start).hostname or ""):
        raise UserError("SourceUriInvalid", f"{uri!r} is redirected to {following[:200]!r}, an address of the build "
                        "Job's own machine", field=context.field, value=uri, remedy="name the file's own address")


def check_model(names: Sequence[str], kept: Sequence[str], top: str, uri: str, context: FetchContext) -> None:
    """Whether what is to be downloaded to ``top`` of what is there may be a model, told by names. Raises
    :class:`UserError` ``PickleRefused``, ``SourceNotFound`` or ``FormatUnknown``."""
    models = [name for name in kept if (PurePosixPath(name).suffix in _MODELS or PurePosixPath(name).name == GRAPH)
              and PurePosixPath(name).name != METRIC_FILE]
    pickles = [name for name in names if PurePosixPath(name).suffix in PICKLES]
    if not models and pickles:
        raise UserError("PickleRefused", f"{uri} has its weights as pickle only ({', '.join(pickles[:4])})",
                        field=context.field, value=uri, remedy=PICKLE_REMEDY)
    if not kept:
        raise UserError("SourceNotFound", f"{uri} has nothing that a build reads", field=context.field, value=uri,
                        remedy="name a repository, folder or file that is a model")
    if models and all(str(PurePosixPath(name).parent) != (top or ".") for name in models):
        raise UserError("FormatUnknown", f"{uri} has no model at its top, but in folders: {', '.join(models[:6])}",
                        field=context.field, value=uri, remedy="name the folder or the file in the URI")


def tidy_environment() -> None:
    """Entries of a Secret that was made from files end with a line break, which no credential has."""
    for name in [name for name in os.environ if name.startswith(_VARIABLES)]:
        os.environ[name] = os.environ[name].strip()


def check_address(name: str) -> None:
    """Raises :class:`UserError` ``CredentialsInvalid`` for a variable that is no address."""
    address = os.environ.get(name, "")
    if address and not re.match(r"https?://[^\s/]", address, re.IGNORECASE):
        raise bad_credentials(f"{name} is no address", f"write http:// or https:// and the host into {name}")


def bad_credentials(what: str, remedy: str) -> UserError:
    """Values stay out of it."""
    return UserError("CredentialsInvalid", what, field=_CREDENTIALS, value="", remedy=remedy)


def denied(uri: str, why: str, context: FetchContext, remedy: str) -> UserError:
    return UserError("SourceAccessDenied", f"{uri} {why}", field=context.field, value=uri, remedy=remedy)
