"""Texts that an engine's server makes token ids of: what may be asked for, of which source. Standard library alone.

``models/texted.py`` is the source behind its own tokenizer, ``engines/texted.py`` an engine behind the one that serves,
``pod/python_model/tokeniser.py`` that one.
"""

from __future__ import annotations

import dataclasses

from enginewright_builder.contract import Interface, Preprocess, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.shapes import BATCH, STRING, shape_text
from enginewright_builder.sources.formats import Located

TOKENIZER_FILE = "tokenizer.json"
# In an engine's folder: the tokenizer that serves.
TOKENISER_FILE = "tokeniser.json"
# Of texts, and of pairs of texts.
SHAPES: tuple[tuple[int | str, ...], ...] = ((BATCH, 1), (BATCH, 2))


def text_input(interface: Interface | None) -> TensorSpec | None:
    """The input whose texts the server makes token ids of, with its shape; None where there is none."""
    for spec in interface.inputs if interface else ():
        if is_text(spec):
            front = BATCH if not spec.shape or isinstance(spec.shape[0], str) else spec.shape[0]
            return dataclasses.replace(spec, shape=(front, *(spec.shape[1:] or (1,))))
    return None


def is_text(spec: TensorSpec) -> bool:
    return spec.dtype == STRING and spec.preprocess is not None


def without_texts(interface: Interface | None) -> Interface | None:
    """What is stated of the source itself, which tells its own inputs where clients send texts; None where nothing
    is."""
    if interface is None or text_input(interface) is None:
        return interface
    left = dataclasses.replace(interface, inputs=())
    return left if left.outputs or left.postprocess else None


def check_texts(located: Located, interface: Interface | None) -> None:
    """Raises :class:`UserError` ``InterfaceInvalid`` for texts that this source's files make no
    token ids of."""
    spec = text_input(interface)
    if interface is None or spec is None:
        return
    field = f"spec.interface.inputs[{spec.name}]"
    if spec.preprocess != Preprocess(from_source=True) or spec.normalise is not None:
        raise _invalid(f"input {spec.name!r} is of texts, and only the source says how token ids are made of them",
                       f"{field}.preprocess", "size, resample, cropSize or normalise",
                       "write preprocess: {fromSource: true} alone")
    if interface.padding is not None:
        raise _invalid(f"input {spec.name!r} is of texts, and they are filled up as the source's own tokenizer does it",
                       "spec.interface.padding.mask", interface.padding.mask, "remove padding")
    if len(interface.inputs) > 1:
        raise _invalid(f"input {spec.name!r} is of texts, and stands in the place of all inputs of the source",
                       "spec.interface.inputs", ", ".join(one.name for one in interface.inputs),
                       f"leave {spec.name} alone in the list, or leave it out and let clients send token ids")
    if spec.shape not in SHAPES:
        raise _invalid(f"input {spec.name!r} is neither a batch of texts nor one of pairs", f"{field}.shape",
                       shape_text(spec.shape), "write [batch, 1], or [batch, 2] for pairs of texts")
    _check_files(located, spec, f"{field}.preprocess.fromSource")


def _check_files(located: Located, spec: TensorSpec, field: str) -> None:
    asks = f"token ids are to be made of input {spec.name!r} as the source says, and the source"
    if located.format != "huggingface":
        raise _invalid(f"{asks} is {located.format}, not huggingface", field, "true",
                       f"give the model as a Hugging Face folder with {TOKENIZER_FILE}, name a function of yours in "
                       "spec.interface.pythonSteps, or let clients send token ids")
    if not (located.path / TOKENIZER_FILE).is_file():
        raise _invalid(f"{asks} has no {TOKENIZER_FILE}", field, "true",
                       "write it into the model's folder: AutoTokenizer.from_pretrained(F).save_pretrained(F) of "
                       "transformers makes it of older files in F; or name a function of yours in "
                       "spec.interface.pythonSteps, or let clients send token ids")


def _invalid(message: str, field: str, value: object, remedy: str) -> UserError:
    return UserError("InterfaceInvalid", message, field=field, value=value, remedy=remedy)
