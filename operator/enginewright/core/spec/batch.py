"""A data set that is run through the engine once, in place of requests, and what a spec may say beside it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from enginewright.core.spec.base import CLAIM_NAME, MAX_TEXT, Remedy, SpecModel

ClaimUri = Annotated[
    str,
    Field(max_length=MAX_TEXT, pattern=rf"^pvc://{CLAIM_NAME}/[^\s?#]+$"),
    Remedy("write pvc://CLAIM/path, naming a PersistentVolumeClaim of the object's namespace"),
]


class BatchInputSpec(SpecModel):
    """The rows to answer."""

    uri: ClaimUri
    """Where they are, as pvc://CLAIM/path: .npz with one array for each model input, rows along axis 0; or .jsonl with
    {"text": ...} or {"<input>": [...]} on each line."""


class BatchOutputSpec(SpecModel):
    """The answers."""

    uri: ClaimUri
    """Folder for them, as pvc://CLAIM/folder, which the pods of several nodes write at once where parallelism asks for
    it. Answers are in files answers-FROM-TO of the format of the input, whose names sort in the order of the rows."""


class BatchSpec(SpecModel):
    """Run a data set through the engine once, shard by shard, in place of serving requests."""

    input: BatchInputSpec
    """The rows to answer."""
    output: BatchOutputSpec
    """Where answers go. A folder takes the answers of one engine to one input; another run needs another one."""
    shards: int = Field(default=1, ge=1, le=10_000)
    """Parts of the input, each of which one pod answers. What a pod that is taken back has answered stays."""
    parallelism: int = Field(default=1, ge=1, le=1000)
    """How many pods run at once, each with a server and an accelerator of its own."""
