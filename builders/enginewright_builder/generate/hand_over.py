"""What a build of a language model leaves for who proves it: the model as it was fetched and checked, with the
checkpoints that compete with it, the drafts that propose tokens to it, and the prompts.
The first half needs the network, credentials and no server; the second one needs a server and nothing else.

```
language-model.json   the document
model/                all files of the source
checkpoints/NAME/     all files of a checkpoint, where there are any
drafts/NAME/          and of a draft
prompts               the file of prompts
```
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.contract import CONTRACT_VERSION, BuildRequest, ContractError, ResolvedSource, dumps, load
from enginewright_builder.generate.resolving import ResolvedModel, resolve_model
from enginewright_builder.sources.digest import sorted_files
from enginewright_builder.supervise import CHECKPOINTS, DRAFTS
from enginewright_builder.triton.repository import place

DOCUMENT, MODEL, PROMPTS = "language-model.json", "model", "prompts"


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """``request`` has all digests. ``steps`` are seconds of each step so far, ``spent`` of all of them."""

    request: BuildRequest
    source: ResolvedSource
    notes: tuple[str, ...]
    steps: Mapping[str, float]
    spent: float
    version: int = CONTRACT_VERSION


def leave(resolved: ResolvedModel, folder: Path, steps: Mapping[str, float], spent: float) -> None:
    """In ``folder``, which it empties first; the document comes last."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / MODEL).mkdir(parents=True)
    _place(resolved.model.path, folder / MODEL)
    for name, checkpoint in resolved.checkpoints.items():
        _place(checkpoint.path, folder / CHECKPOINTS / name)
    for name, draft in resolved.drafts.items():
        _place(draft.path, folder / DRAFTS / name)
    place(resolved.prompts, folder / PROMPTS)
    told = HandOver(request=resolved.request, source=resolved.source, notes=resolved.notes, steps=dict(steps),
                    spent=spent)
    (folder / DOCUMENT).write_text(dumps(told), encoding="utf-8")


def _place(source: Path, target: Path) -> None:
    for relative, file in sorted_files(source):
        place(file, target / relative)


def left(folder: Path) -> bool:
    return (folder / DOCUMENT).is_file()


def read(folder: Path) -> HandOver:
    """Raises :class:`ContractError` for a document that is none or of no language model."""
    told = load(HandOver, (folder / DOCUMENT).read_text(encoding="utf-8"))
    if told.request.generate is None or told.request.accuracy.evaluation is None:
        raise ContractError("HandOver.request: expected the request of a language model, with prompts")
    return told


def taken(told: HandOver, folder: Path, scratch: Path) -> ResolvedModel:
    """As if it were resolved again: the digests in the request say whether all is still what was left. Raises as
    :func:`resolve_model` does."""
    asked, evaluation = told.request, told.request.accuracy.evaluation
    assert evaluation is not None
    assert asked.generate is not None
    checkpoints = tuple(dataclasses.replace(one, uri=str(folder / CHECKPOINTS / one.name))
                        for one in asked.generate.checkpoints)
    drafts = tuple(dataclasses.replace(one, uri=str(folder / DRAFTS / one.name)) for one in asked.generate.drafts)
    here = dataclasses.replace(
        asked, signature=None, source=dataclasses.replace(asked.source, uri=str(folder / MODEL)),
        generate=dataclasses.replace(asked.generate, checkpoints=checkpoints, drafts=drafts),
        accuracy=dataclasses.replace(asked.accuracy, evaluation=dataclasses.replace(
            evaluation, uri=str(folder / PROMPTS))))
    return dataclasses.replace(resolve_model(here, scratch), request=asked, source=told.source, notes=told.notes)
