"""Other weights of a language model that the user lists: fetched and checked like the source, and held against what it
is, before a server is started. Whether they are as good as its own the gate says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.contract import BuildRequest, CheckpointRequest
from enginewright_builder.errors import UserError
from enginewright_builder.sources import places
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.causal import Causal, locate_causal
from enginewright_builder.sources.fetching import fetch
from enginewright_builder.sources.signature import asked_for

FIELD = "spec.engine.checkpoints"
MOST = 8
# The CRD has the same pattern. A hand-over has a folder for each name.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SOURCE, _DIGEST = "spec.source.uri", "spec.source.digest"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """``digest`` is of all its files."""

    model: Causal
    digest: str


def resolve_checkpoints(request: BuildRequest, source: Causal, scratch: Path) -> Mapping[str, Checkpoint]:
    """By their names, in the order of the request. Raises as a source does, with the checkpoint's field, and
    :class:`UserError` ``RequestInvalid`` or ``CheckpointMismatch``. Where the request
    asks for a signature, each checkpoint needs one."""
    listed = request.generate.checkpoints if request.generate else ()
    _check_names(listed)
    return {one.name: _resolve(request, one, source, number, scratch) for number, one in enumerate(listed)}


def _check_names(listed: tuple[CheckpointRequest, ...]) -> None:
    if len(listed) > MOST:
        raise UserError("RequestInvalid", f"{len(listed)} checkpoints are too many", field=FIELD, value=len(listed),
                        remedy=f"list {MOST} at most")
    for number, one in enumerate(listed):
        if not _NAME.fullmatch(one.name):
            raise UserError("RequestInvalid", f"{one.name!r} cannot name a checkpoint", field=f"{FIELD}[{number}].name",
                            value=one.name, remedy="write 1 to 63 lower-case letters, digits and '-', such as awq")
        if one.name in {other.name for other in listed[:number]}:
            raise UserError("RequestInvalid", f"two checkpoints have the name {one.name}",
                            field=f"{FIELD}[{number}].name", value=one.name, remedy="give each a name of its own")


def _resolve(request: BuildRequest, one: CheckpointRequest, source: Causal, number: int, scratch: Path) -> Checkpoint:
    field = f"{FIELD}[{number}].uri"
    path, digest = fetch(one.uri, FetchContext(mounts=request.mounts, scratch=scratch / places.CHECKPOINTS / one.name,
                                               field=field, digest=one.digest, check=asked_for(request.signature)))
    if not path.is_dir():
        raise UserError("FormatUnknown", "the checkpoint is a file, and a language model is a folder", field=field,
                        value=one.uri, remedy="give the folder that save_pretrained writes")
    try:
        model = locate_causal(path)
    except UserError as error:  # what looks at a source names the source's field
        error.message = f"checkpoint {one.name}: {error.message}"
        error.field = field if error.field == _SOURCE else error.field
        error.remedy = error.remedy.replace(_DIGEST, f"{FIELD}[{number}].digest")
        raise
    _check_same(model, source, request, one, field)
    return Checkpoint(model=model, digest=digest)


def _check_same(model: Causal, source: Causal, request: BuildRequest, one: CheckpointRequest, field: str) -> None:
    """Other weights, of the same model. A shorter context would serve less than was asked for."""
    assert request.generate is not None
    context = request.generate.context_tokens or source.context
    if model.architecture != source.architecture:
        problem = f"its architecture is {model.architecture}, and the source's {source.architecture}"
    elif model.vocabulary != source.vocabulary:
        problem = f"its vocabulary has {model.vocabulary} tokens, and the source's {source.vocabulary}"
    elif model.context and context > model.context:
        problem = f"it was made for {model.context} tokens, and {context} are served"
    else:
        return
    raise UserError("CheckpointMismatch", f"checkpoint {one.name} is of another model: {problem}", field=field,
                    value=one.uri, remedy="give other weights of the same model, such as quantised ones, or remove it")
