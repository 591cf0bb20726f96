"""What is wrong with texts that the server is to make token ids of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from enginewright.core.problems import Problem
from enginewright.core.spec.interface import InputSpec
from enginewright.core.spec.parse import show

# Of one row: a text, or a pair.
_SIDES = (1, 2)


def is_text(tensor: InputSpec) -> bool:
    return tensor.dtype == "string" and tensor.preprocess is not None


def text_problems(field: str, inputs: Sequence[InputSpec]) -> Iterator[Problem]:
    """``field`` is the path of the list."""
    for index, tensor in enumerate(inputs):
        if is_text(tensor):
            yield from _text(f"{field}[{index}]", tensor)
            if len(inputs) > 1:
                yield _problem(field, [one.name for one in inputs],
                               f"has more than {tensor.name}, an input of texts, which stands in the place of all "
                               "inputs of the source",
                               "leave it alone in the list, or remove its preprocess and let clients send token ids")


def _text(field: str, tensor: InputSpec) -> Iterator[Problem]:
    how = tensor.preprocess
    if how and not how.from_source:
        yield _problem(f"{field}.preprocess", how.model_dump(by_alias=True, exclude_defaults=True),
                       "does not say how token ids are made of texts: only the source does",
                       "write preprocess: {fromSource: true}")
    shape = tensor.shape
    if shape and (isinstance(shape[0], int) or len(shape) > 2 or (len(shape) == 2 and shape[1] not in _SIDES)):
        yield _problem(f"{field}.shape", list(shape), "is neither a batch of texts nor one of pairs",
                       "write [batch, 1], or [batch, 2] for pairs of texts, or leave it out")


def _problem(field: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=field, value=show(value), message=message, remedy=remedy)
