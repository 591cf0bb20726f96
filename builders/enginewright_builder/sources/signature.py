"""Is the source what its publisher signed? OpenSSF model signing, before anything of it is opened.

The signature is a file beside the model that names every file with its digest (``model_signing sign key``, or
``sign certificate``). What is not named is refused as well as what differs. That of a single file names that file
alone: a graph that takes tensors from others needs the signature of its folder. Neither is anything asked of the
network: the key, or the certificates that are trusted, are given.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from enginewright_builder.contract import SignatureRequest
from enginewright_builder.errors import UserError, brief
from enginewright_builder.sources.external_data import external_files

# In a model's folder; a single file has its own name with ``.sig`` behind it.
IN_FOLDER, BESIDE_FILE = "model.sig", ".sig"
_FIELD = "spec.source.signature"


def asked_for(request: SignatureRequest | None) -> Callable[[Path], None]:
    """Checks the signature of what was fetched, where one is asked for."""
    def check(source: Path) -> None:
        if request is not None:
            check_signature(source, request)

    return check


def check_signature(source: Path, request: SignatureRequest) -> None:
    """Raises :class:`UserError` ``SignatureKeyMissing``, ``SignatureMissing`` or ``SignatureInvalid``, and
    ``SourceCorrupt`` where a file is missing that a signed graph names."""
    key, signature = Path(request.key_path), signature_path(source, request.path)
    if not key.is_file():
        raise UserError("SignatureKeyMissing", f"{request.key_name} is not there, so the signature cannot be checked",
                        field=_FIELD, value=request.key_name,
                        remedy="create it, then run kubectl optimisedmodel retry")
    if not signature.is_file():
        raise UserError("SignatureMissing", f"the source is not signed: there is no {signature.name} beside it",
                        field=f"{_FIELD}.path", value=request.path or signature.name,
                        remedy="sign it with model_signing, name the file's path, or remove spec.source.signature")
    try:
        _verifier(request.method, key).verify(source, signature)
    except UserError:
        raise
    except Exception as error:  # ValueError mostly, and whatever a file that is no signature makes of its reader
        raise UserError("SignatureInvalid", f"the source is not what was signed: {brief(error)}", field=_FIELD,
                        value=signature.name,
                        remedy="find out who changed the source or which key signed it; sign it again if it is right"
                        ) from error
    if source.is_file():
        _check_alone(source)


def _check_alone(graph: Path) -> None:
    """Of a single file whose signature is right, so that it may be opened."""
    if beside := external_files(graph):
        names = ", ".join(file.location for file in beside[:4]) + (", …" if len(beside) > 4 else "")
        raise UserError("SignatureInvalid", f"the signature of {graph.name} does not cover {names}, from which it "
                        "takes weights", field="spec.source.uri", value=graph,
                        remedy="name the folder in spec.source.uri, and sign all of it")


def signature_path(source: Path, given: str) -> Path:
    folder = source if source.is_dir() else source.parent
    return folder / (given or (IN_FOLDER if source.is_dir() else f"{source.name}{BESIDE_FILE}"))


def _verifier(method: str, key: Path) -> Any:
    from model_signing import verifying  # half a second: only where it is used

    library: Any = verifying  # it has no types
    config = library.Config()
    try:
        if method == "certificate":
            return config.use_certificate_verifier(certificate_chain=[key])
        return config.use_elliptic_key_verifier(public_key=key)
    except Exception as error:  # of cryptography or OpenSSL, for each kind of rubbish
        wanted = "a certificate" if method == "certificate" else "an elliptic-curve public key"
        raise UserError("SignatureInvalid", f"the key is not {wanted} in PEM: {brief(error)}",
                        field=_FIELD, value=key.name, remedy=f"put {wanted} there, in PEM") from error
