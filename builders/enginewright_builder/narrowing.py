"""What a build tries where PyTorch cannot export a model as it is: of a Hugging Face model one length of texts; of any
that PyTorch traces its own package, which needs no ONNX; of a Hugging Face model the graph of one call. Each is served
with the word what stood in the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from enginewright_builder.contract import BuildRequest, Interface
from enginewright_builder.engines.registry import WITHOUT_GRAPH
from enginewright_builder.errors import UserError
from enginewright_builder.models import SourceModel
from enginewright_builder.models.folder_tokenizer import FolderTokenizer
from enginewright_builder.models.one_length import is_too_long, length_note, of_one_length
from enginewright_builder.models.synthetic import half_filled
from enginewright_builder.models.texted import in_tokens
from enginewright_builder.tensors import Tensors

if TYPE_CHECKING:
    from enginewright_builder.models.torch_base import TorchModel

T = TypeVar("T")
# Reasons for which the build tries without ONNX: the export failed, or it answers otherwise than the model.
NO_GRAPH = ("ExportFailed", "ExportMismatch")
# The model fails on lengths that its configuration allows; or the exporter on free ones.
_OF_SIZES = "spec.interface.inputs"


@dataclass(frozen=True, kw_only=True)
class Opened:
    """``stated`` is what ``source`` was opened with. ``as_ran``: it is exported as one call of it ran. ``no_graph``
    says why PyTorch's own package alone is built, empty where the source is exported to ONNX."""

    source: SourceModel
    stated: Interface | None
    as_ran: bool = False
    no_graph: str = ""

    def checks(self, batches: Sequence[Tensors]) -> Sequence[Tensors]:
        """What an export is held against beside single requests: other calls may branch otherwise than the one that it
        is made of, and made-up data have no text that is filled up."""
        if not self.as_ran:
            return ()
        return (*batches, {name: half_filled(name, array) for name, array in batches[0].items()})


def as_free_as_possible(opened: Opened, source_format: str, attempt: Callable[[Opened], T],
                        note: Callable[[str], None], packaged: bool = False) -> T:
    """What ``attempt`` makes of the source, or of the first narrower one of which it makes something. ``packaged``:
    PyTorch's own package may serve. Raises what it does of the source itself, unless it says of a narrower one that no
    way leads to such a model."""
    try:
        return attempt(opened)
    except UserError as error:
        refused = error
    for other in narrower(opened, refused, source_format, packaged):
        note(f"tried {'without ONNX' if other.no_graph else 'with less that is free'}: {refused.message}")
        try:
            return attempt(other)
        except UserError as error:
            if error.reason == "UnsupportedModel":
                refused = error
    raise refused


def narrower(opened: Opened, refused: UserError, source_format: str, packaged: bool = False) -> Iterator[Opened]:
    """The likeliest first. None for other errors than those of sizes, branches and exports. Sizes are fixed only where
    the engine makes nothing of inputs or outputs: whether that stays the same with the batch fixed is not known."""
    source, fixed = opened.source, None
    fixable = _fixable(source, refused, source_format)
    if fixable is not None and (fixed := _of_one_length(fixable, refused)) is not None:
        yield _of_inputs(opened, fixed)
    if packaged and refused.reason in NO_GRAPH and has_program(source):
        yield dataclasses.replace(opened, no_graph=f"{refused.message}. PyTorch's own package, which needs no ONNX, is "
                                                   "the only engine that is built")
    if fixable is None:
        return
    from enginewright_builder.models.as_ran import AsRan, of_one_size

    last = fixed or fixable
    if of_one_size(last.interface):
        opened = _of_inputs(opened, fixed) if fixed else opened
        yield dataclasses.replace(opened, source=AsRan(last, refused.message), as_ran=True)


def package_lacks(request: BuildRequest) -> tuple[str, ...]:
    """What the user would have to change for PyTorch's own package to serve a model that has no ONNX."""
    chosen, runtime = request.engine.backend, request.runtime
    backend = chosen not in ("auto", *WITHOUT_GRAPH)
    image = not set(WITHOUT_GRAPH) & set(runtime.python_runtimes)
    by_hand = image and not runtime.server_image
    return tuple(what for what, lacking in (
        ("write spec.engine.backend: torch", backend or by_hand),
        ("name an image with PyTorch in spec.serving.image", image and not by_hand),
        ("leave spec.quality out, which compares with the ONNX", request.keep_reference)) if lacking)


def has_program(source: SourceModel) -> bool:
    """Whether there is something that PyTorch could trace."""
    return in_tokens(source).torch_program("fp32") is not None


def _fixable(source: SourceModel, refused: UserError, source_format: str) -> TorchModel | None:
    of_sizes = refused.reason == "UnsupportedModel" and refused.field == _OF_SIZES
    if source_format != "huggingface" or not (of_sizes or refused.reason == "ExportFailed"):
        return None
    from enginewright_builder.models.torch_base import TorchModel  # it imports PyTorch

    return source if type(source) is TorchModel else None


def _of_inputs(opened: Opened, fixed: TorchModel) -> Opened:
    return Opened(source=fixed, stated=dataclasses.replace(opened.stated or Interface(),
                                                           inputs=fixed.interface.inputs))


def _of_one_length(source: TorchModel, refused: UserError) -> TorchModel | None:
    """For the longest of the lengths that the model answers, and that a loop over its tokens does not make a graph of
    too many operators."""
    for length, inputs in of_one_length(source.interface.inputs):
        tokenize = source.tokenize
        try:
            fixed = source.with_sizes(inputs, tokenize.filled_to(length) if isinstance(tokenize, FolderTokenizer)
                                      else tokenize)
        except UserError:
            continue
        if is_too_long(length, source.operators):
            continue
        fixed.notes = (*fixed.notes, length_note(length, refused.message))
        return fixed
    return None
