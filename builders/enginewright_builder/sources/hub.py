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
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from enginewright_builder.errors import BuilderError, TransientError, UserError, brief
from enginewright_builder.foreign_names import check_names
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.formats import METRIC_FILE, PICKLE_SUFFIXES
from enginewright_builder.sources.hub_client import Limits, limited
from enginewright_builder.sources.remote import (
    MOST_FILES,
    PICKLES,
    check_address,
    check_model,
    denied,
    tidy_environment,
)

_URI = re.compile(r"hf://(?P<repository>[\w.-]+/[\w.-]+?)(@(?P<revision>[^@/]+))?(?P<path>/.*)?", re.ASCII)
# Beside safetensors: weights of other frameworks, which may be many times the model, and what no build reads, so that a
# new README is no new model.
_OTHER_WEIGHTS = frozenset({*PICKLE_SUFFIXES, ".h5", ".msgpack", ".ot", ".onnx", ".data", ".gguf", ".tflite", ".xml",
                            ".mlmodel", ".npz"})
_OTHER_NAMES = re.compile(r"(^|/)(original|runs)/|(^|/)consolidated[^/]*\.safetensors$|\.onnx_data")
_UNREAD = frozenset({".md", ".py", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".ipynb"})
_HIDDEN = frozenset({".gitattributes", ".gitignore"})
# Kinds of repositories that are no models, whose addresses look alike.
_OTHER_KINDS = frozenset({"datasets", "spaces", "buckets"})

# Bytes. For larger files the hub has a library that makes connections of its own, whose ends nothing checks.
MOST_OF_A_FILE = 50_000_000_000


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
        tidy_environment()
        check_address("HF_ENDPOINT")
        with _users_errors(uri, context), _online():
            from huggingface_hub import HfApi  # only where it is used
            from huggingface_hub.utils.tqdm import disable_progress_bars

            disable_progress_bars()
            hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, library_name="enginewright")
            limits = Limits(uri, hub.endpoint, context)
            with limited(limits):
                commit = str(hub.repo_info(place.repository, revision=place.revision or None).sha)
                files = _files(hub, place, commit, uri, context)
                root = context.scratch / place.folder
                _check(files, place.repository, context)
                _download(hub, place.repository, commit, files, root, context, limits)
            return root / place.path


def _place(uri: str, context: FetchContext) -> _Place:
    match = _URI.fullmatch(uri)
    path = unquote(match["path"] or "").strip("/") if match else ""
    known = match is not None and match["repository"].partition("/")[0] not in _OTHER_KINDS
    if match is None or not known or ".." in PurePosixPath(path).parts:
        raise UserError("SourceUriInvalid", f"{uri!r} names no repository of a model", field=context.field, value=uri,
                        remedy="write hf://ORG/NAME@REVISION, a revision's / as %2F, and behind it /FOLDER or /FILE if "
                               "only that is meant")
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
    tree = list(islice(hub.list_repo_tree(place.repository, place.path or None, recursive=True, revision=commit),
                       MOST_FILES + 1))
    if len(tree) > MOST_FILES:
        raise UserError("SourceTooLarge", f"{uri} has more than {MOST_FILES:,} files and folders", field=context.field,
                        value=uri, remedy="name the folder or file that is the model")
    files = [entry for entry in tree if hasattr(entry, "size")]
    kept = _read(files, PurePosixPath(place.path))
    check_model([entry.path for entry in files], [entry.path for entry in kept], place.path, uri, context)
    return kept


def _read(files: Sequence[Any], top: PurePosixPath) -> list[Any]:
    suffixes = {PurePosixPath(entry.path).suffix for entry in files if PurePosixPath(entry.path).parent == top}
    left_out = PICKLES
    if ".safetensors" in suffixes:
        left_out = _OTHER_WEIGHTS
    elif ".onnx" in suffixes:
        left_out = PICKLES - {".bin"}  # which may be the graph's own tensors
    return [entry for entry in files if _is_read(PurePosixPath(entry.path), left_out)
            and not (".safetensors" in suffixes and _OTHER_NAMES.search(entry.path))]


def _is_read(path: PurePosixPath, left_out: frozenset[str]) -> bool:
    if path.name == METRIC_FILE:  # a user's measure of accuracy lies beside the model
        return True
    return path.suffix not in left_out | _UNREAD and path.name not in _HIDDEN


def _check(files: Sequence[Any], repository: str, context: FetchContext) -> None:
    """What names and sizes tell, before anything is downloaded."""
    total = sum(map(_size, files))
    if total > context.size_limit:
        raise UserError("SourceTooLarge", f"{repository} has {total} bytes, more than {context.size_limit}",
                        field=context.field, value=repository, remedy="name the folder or file that is the model")
    if large := next((entry for entry in files if _size(entry) > MOST_OF_A_FILE), None):
        raise UserError("SourceTooLarge", f"{repository} has {large.path} of {_size(large):,} bytes, more than a hub "
                        f"sends of one file by https ({MOST_OF_A_FILE:,})", field=context.field, value=repository,
                        remedy="put the model on a volume and name it as pvc://CLAIM/path")
    try:
        check_names(entry.path for entry in files)
    except ValueError as error:
        raise UserError("SourceUriInvalid", f"{repository}: {error}", field=context.field, value=repository,
                        remedy="name a folder or file with usual names of files") from error


def _size(entry: Any) -> int:
    return max(int(entry.size), 0)


def _download(hub: Any, repository: str, commit: str, files: Sequence[Any], root: Path, context: FetchContext,
              limits: Limits) -> None:
    total, received = sum(map(_size, files)), 0
    root.mkdir(parents=True, exist_ok=True)
    for entry in files:
        with limits.of_file(entry.path, _size(entry)):
            hub.hf_hub_download(repository, entry.path, revision=commit, local_dir=root)
        received += _size(entry)
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
def _users_errors(uri: str, context: FetchContext) -> Iterator[None]:
    """What the hub answers, as the builder's errors."""
    from huggingface_hub import errors

    try:
        yield
    except BuilderError:
        raise
    except errors.LocalEntryNotFoundError as error:  # what the client makes of a file that it did not get
        raise _of_status(uri, error.__cause__ or error, context) from error
    except (errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
        raise UserError("SourceNotFound", f"{uri}: {brief(error)}", field=context.field, value=uri,
                        remedy="name a branch, tag or commit that the repository has, its / as %2F") from error
    except (errors.RepositoryNotFoundError, errors.DisabledRepoError) as error:
        raise _hidden(uri, error, context) from error
    except errors.HFValidationError as error:
        raise UserError("SourceUriInvalid", f"{uri!r}: {brief(error)}", field=context.field, value=uri,
                        remedy="write hf://ORG/NAME@REVISION") from error
    except Exception as error:  # the client and its libraries fail in classes of their own
        if isinstance(error, OSError) and error.errno is not None:  # the disk's
            raise
        raise _of_status(uri, error, context) from error


def _of_status(uri: str, error: BaseException, context: FetchContext) -> BuilderError:
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if status in (401, 403):
        return _hidden(uri, error, context)
    return TransientError("SourceUnreachable", f"{uri}: {brief(error)}", field=context.field, value=uri,
                          remedy="check that the hub can be reached from the cluster (HF_ENDPOINT names another one)")


def _hidden(uri: str, error: BaseException, context: FetchContext) -> UserError:
    """The hub does not tell one that is not there from one that may not be seen."""
    return denied(uri, f"is not there, or may not be read: {brief(error)}", context,
                  "check the name; for a private or gated repository name a Secret that has HF_TOKEN in "
                  "spec.source.secretRef")
