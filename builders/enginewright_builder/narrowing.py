"""What a build tries where PyTorch cannot export a Hugging Face model as free as the model is: one length of texts, and
then the graph of one call. Both are served with the word what stood in the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from enginewright_builder.contract import Interface
from enginewright_builder.errors import UserError
from enginewright_builder.models import SourceModel
from enginewright_builder.models.folder_tokenizer import FolderTokenizer
from enginewright_builder.models.one_length import length_note, of_one_length
from enginewright_builder.models.synthetic import half_filled
from enginewright_builder.tensors import Tensors

if TYPE_CHECKING:
    from enginewright_builder.models.torch_base import TorchModel

T = TypeVar("T")
# The model fails on lengths that its configuration allows; or the exporter on free ones.
_OF_SIZES = "spec.interface.inputs"


@dataclass(frozen=True, kw_only=True)
class Opened:
    """``stated`` is what ``source`` was opened with. ``as_ran``: it is exported as one call of it ran."""

    source: SourceModel
    stated: Interface | None
    as_ran: bool = False

    def checks(self, batches: Sequence[Tensors]) -> Sequence[Tensors]:
        """What an export is held against beside single requests: other calls may branch otherwise than the one that it
        is made of, and made-up data have no text that is filled up."""
        if not self.as_ran:
            return ()
        return (*batches, {name: half_filled(name, array) for name, array in batches[0].items()})


def as_free_as_possible(opened: Opened, source_format: str, attempt: Callable[[Opened], T],
                        note: Callable[[str], None]) -> T:
    """What ``attempt`` makes of the source, or of the first narrower one of which it makes something. Raises what it
    does of the source itself, unless it says of a narrower one that no way leads to such a model."""
    try:
        return attempt(opened)
    except UserError as error:
        refused = error
    for other in narrower(opened, refused, source_format):
        note(f"tried with less that is free: {refused.message}")
        try:
            return attempt(other)
        except UserError as error:
            if error.reason == "UnsupportedModel":
                refused = error
    raise refused


def narrower(opened: Opened, refused: UserError, source_format: str) -> Iterator[Opened]:
    """The likeliest first. None for other errors than those of sizes and branches, nor where the engine is to make
    something of inputs or outputs: whether that stays the same with the batch fixed is not known."""
    from enginewright_builder.models.torch_base import TorchModel  # it imports PyTorch

    source = opened.source
    of_sizes = refused.reason == "UnsupportedModel" and refused.field == _OF_SIZES
    if source_format != "huggingface" or type(source) is not TorchModel or not (
            of_sizes or refused.reason == "ExportFailed"):
        return
    fixed = _of_one_length(source, refused)
    if fixed is not None:
        opened = Opened(source=fixed, stated=dataclasses.replace(opened.stated or Interface(),
                                                                 inputs=fixed.interface.inputs))
        yield opened
    from enginewright_builder.models.as_ran import AsRan, of_one_size

    last = fixed or source
    if of_one_size(last.interface):
        yield dataclasses.replace(opened, source=AsRan(last, refused.message), as_ran=True)


def _of_one_length(source: TorchModel, refused: UserError) -> TorchModel | None:
    """For the longest of the lengths that the model answers."""
    for length, inputs in of_one_length(source.interface.inputs):
        tokenize = source.tokenize
        try:
            fixed = source.with_sizes(inputs, tokenize.filled_to(length) if isinstance(tokenize, FolderTokenizer)
                                      else tokenize)
        except UserError:
            continue
        fixed.notes = (*fixed.notes, length_note(length, refused.message))
        return fixed
    return None
