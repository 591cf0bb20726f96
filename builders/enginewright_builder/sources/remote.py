"""What sources in buckets and on hubs have in common: names that are to become files, and credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from enginewright_builder.errors import UserError
from enginewright_builder.sources.base import FetchContext

# Of one part of a path, in bytes: what usual file systems have, less what is added to the name of an unfinished file.
LONGEST_NAME = 250
_VARIABLES = ("AWS_", "GOOGLE_", "HF_")
_CREDENTIALS = "spec.source.credentialsFrom"


def check_names(names: Iterable[str]) -> None:
    """Names that others gave are any text, and not all make a folder. Raises ``ValueError``."""
    paths = {PurePosixPath(name) for name in names}
    for path in paths:
        if path.is_absolute() or {"..", "."} & set(path.parts) or "\0" in str(path):
            raise ValueError(f"{str(path)!r} leads out of its folder")
        if any(len(part.encode()) > LONGEST_NAME for part in path.parts):
            raise ValueError(f"{str(path)[:40]!r}… has a name of more than {LONGEST_NAME} bytes")
        if clash := next((folder for folder in path.parents if folder in paths), None):
            raise ValueError(f"{clash} is both a file and a folder")


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


def brief(error: BaseException) -> str:
    """In one line, without a client's own data structures behind it, and without what addresses have
    of users and passwords."""
    said = " ".join(str(error).partition("\n\nDebug source")[0].split())
    return re.sub(r"//[^/@\s]*@", "//***@", said)[:300] or type(error).__name__
