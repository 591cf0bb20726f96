"""Sources on a model hub: ``hf://ORG/NAME``, ``hf://ORG/NAME@REVISION``, and a folder or file of one behind that.

Files are taken by the hub's own client, which reads ``HF_TOKEN`` and ``HF_ENDPOINT``. All are of one commit, also
where a branch moves meanwhile.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.formats import PICKLE_REMEDY, PICKLE_SUFFIXES

_URI = re.compile(r"hf://(?P<repository>[\w.-]+/[\w.-]+?)(@(?P<revision>[^@/]+))?(?P<path>/.*)?", re.ASCII)
# Beside safetensors: weights of other frameworks, which may be many times the model, and what no build reads, so that a
# new README is no new model.
_OTHER_WEIGHTS = frozenset({*PICKLE_SUFFIXES, ".h5", ".msgpack", ".ot", ".onnx", ".onnx_data", ".data", ".gguf",
                            ".tflite", ".xml", ".mlmodel", ".npz"})
_PICKLES = PICKLE_SUFFIXES - {".pt"}  # which may be TorchScript: its content tells
_UNREAD = frozenset({".md", ".py", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".ipynb"})
_HIDDEN = frozenset({".gitattributes", ".gitignore"})


@dataclass(frozen=True)
class _Place:
    repository: str
    revision: str
    path: str

    @property
    def folder(self) -> str:
        """What it is downloaded to: the URI without the organisation and the path."""
        name = self.repository.partition("/")[2]
        return f"{name}@{self.revision}" if self.revision else name


class HubFetcher:
    schemes = ("hf",)

    def fetch(self, uri: str, context: FetchContext) -> Path:
        place = _place(uri, context)
        with _told(uri, context), _online():
            from huggingface_hub import HfApi  # only where somebody asks
            from huggingface_hub.utils.tqdm import disable_progress_bars

            disable_progress_bars()
            hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, library_name="enginewright")
            commit = hub.repo_info(place.repository, revision=place.revision or None).sha
            files = _files(hub, place, str(commit), uri, context)
            root = context.scratch / place.folder
            _download(hub, place.repository, str(commit), files, root, context)
            return root / place.path


def _place(uri: str, context: FetchContext) -> _Place:
    match = _URI.fullmatch(uri)
    path = unquote(match["path"] or "").strip("/") if match else ""
    if match is None or ".." in PurePosixPath(path).parts:
        raise UserError("SourceUriInvalid", f"{uri!r} names no repository of a hub", field=context.field, value=uri,
                        remedy="write hf://ORG/NAME@REVISION, and behind it /FOLDER or /FILE if only that is meant")
    return _Place(match["repository"], unquote(match["revision"] or ""), path)


def _files(hub: Any, place: _Place, commit: str, uri: str, context: FetchContext) -> list[Any]:
    """What is to be downloaded of the repository, or of its folder, or the one file."""
    if place.path:
        found = hub.get_paths_info(place.repository, [place.path], revision=commit)
        if not found:
            raise UserError("SourceNotFound", f"{place.repository} has no {place.path} at {commit[:12]}",
                            field=context.field, value=uri, remedy="name a folder or file that the repository has")
        if hasattr(found[0], "size"):
            return [found[0]]
    tree = hub.list_repo_tree(place.repository, place.path or None, recursive=True, revision=commit)
    files = [entry for entry in tree if hasattr(entry, "size")]
    kept = [entry for entry in files if _is_read(entry.path, files, place.path)]
    if not kept or all(PurePosixPath(entry.path).suffix == ".json" for entry in kept):
        pickles = [entry.path for entry in files if PurePosixPath(entry.path).suffix in _PICKLES]
        if pickles:
            raise UserError("PickleRefused", f"{uri} has its weights as pickle only ({', '.join(pickles[:4])})",
                            field=context.field, value=uri, remedy=PICKLE_REMEDY)
    return kept


def _is_read(name: str, files: Sequence[Any], root: str) -> bool:
    path = PurePosixPath(name)
    if path.suffix in _UNREAD or path.name in _HIDDEN:
        return False
    top = PurePosixPath(root)
    whole = any(PurePosixPath(entry.path).parent == top and entry.path.endswith(".safetensors") for entry in files)
    return path.suffix not in (_OTHER_WEIGHTS if whole else _PICKLES)


def _download(hub: Any, repository: str, commit: str, files: Sequence[Any], root: Path,
              context: FetchContext) -> None:
    total, received = sum(int(entry.size) for entry in files), 0
    if total > context.size_limit:
        raise UserError("SourceTooLarge", f"{repository} has {total} bytes, more than {context.size_limit}",
                        field=context.field, value=repository, remedy="name the folder or file that is the model")
    root.mkdir(parents=True, exist_ok=True)
    for entry in files:
        hub.hf_hub_download(repository, entry.path, revision=commit, local_dir=root)
        received += int(entry.size)
        context.progress(received / max(total, 1), f"{received >> 20} of {total >> 20} MiB")
    # The client's own notes are none of the model, and have times in them.
    shutil.rmtree(root / ".cache", ignore_errors=True)


@contextmanager
def _online() -> Iterator[None]:
    """A builder's process is offline to the hub, so that no model that is loaded fetches anything; but for this."""
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, False
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextmanager
def _told(uri: str, context: FetchContext) -> Iterator[None]:
    """What the hub answers, as the builder's errors."""
    import httpx
    from huggingface_hub import errors

    try:
        yield
    except errors.LocalEntryNotFoundError as error:  # what the client makes of a connection that broke
        raise _unreachable(uri, error, context) from error
    except (errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
        raise UserError("SourceNotFound", f"{uri}: {_brief(error)}", field=context.field, value=uri,
                        remedy="name a branch, tag or commit that the repository has") from error
    except (errors.RepositoryNotFoundError, errors.DisabledRepoError) as error:
        # The hub does not tell one that is not there from one that may not be seen.
        raise _denied(uri, error, context) from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", 0)
        if status in (401, 403):
            raise _denied(uri, error, context) from error
        raise _unreachable(uri, error, context) from error
    except errors.HFValidationError as error:
        raise UserError("SourceUriInvalid", f"{uri!r}: {_brief(error)}", field=context.field, value=uri,
                        remedy="write hf://ORG/NAME@REVISION") from error
    except (httpx.HTTPError, ConnectionError, errors.FileMetadataError, errors.XetDownloadError) as error:
        raise _unreachable(uri, error, context) from error


def _denied(uri: str, error: Exception, context: FetchContext) -> UserError:
    return UserError("SourceAccessDenied", f"{uri} is not there, or may not be read: {_brief(error)}",
                     field=context.field, value=uri,
                     remedy="check the name; for a private or gated repository name a Secret that has HF_TOKEN in "
                            "spec.source.credentialsFrom")


def _unreachable(uri: str, error: Exception, context: FetchContext) -> TransientError:
    return TransientError("SourceUnreachable", f"{uri}: {_brief(error)}", field=context.field, value=uri,
                          remedy="check that the hub can be reached from the cluster (HF_ENDPOINT names another one)")


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
