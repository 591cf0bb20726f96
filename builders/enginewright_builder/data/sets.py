"""Evaluation and calibration sets as batches of model inputs, or made up where the user gives none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from enginewright_builder.accuracy.rules import check_gate, synthetic_samples
from enginewright_builder.accuracy.task_rules import check_units
from enginewright_builder.contract import AccuracyRequest, Interface
from enginewright_builder.data.files import (
    CALIBRATION,
    EVALUATION,
    DataField,
    SampleFile,
    check_against,
    check_overlap,
)
from enginewright_builder.data.labels import queries_of
from enginewright_builder.data.sample_keys import row_key
from enginewright_builder.models.base import SourceModel, end_token, pad_token, table_rows, takes_missing
from enginewright_builder.models.synthetic import DEFAULT_SIZE, example_inputs, usual_size
from enginewright_builder.shapes import size_range
from enginewright_builder.tensors import Array, Tensors

# Made-up samples, at least, when the user gives none. They prove that the arithmetic holds, not that production's
# inputs fare well.
SYNTHETIC_SAMPLES = 64
HELD_OUT, SYNTHETIC = "held-out", "synthetic"
# What one forward pass takes at most during gate and calibration: small enough for any model that serves at all.
GATE_BATCH = 16


@dataclass(frozen=True, kw_only=True)
class SampleSet:
    """``batches`` cover every sample once, and no two samples are the same. ``origin`` is ``held-out`` or
    ``synthetic``; ``repeated`` is how many were left out as they were there before. ``columns`` has by name what the
    file says of each sample beside inputs, in the order of the batches. ``least`` is the shortest length that the model
    takes where a mask marks padding, ``left_out`` what the file has and the model does not take, ``rounded`` which
    whole numbers its types do not have."""

    batches: Sequence[Tensors]
    count: int
    origin: str
    repeated: int = 0
    columns: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)
    least: int = 1
    left_out: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()

    @property
    def typical(self) -> Tensors:
        """The batch in the middle: of median length where lengths vary, as samples are sorted by it."""
        return self.batches[len(self.batches) // 2]

    def request(self, batch: int, of: Tensors | None = None) -> Tensors:
        """``batch`` samples in one shape, taken round and round from one of the set's batches (default: the
        typical)."""
        source = self.typical if of is None else of
        picks = np.arange(batch) % len(next(iter(source.values())))
        return trimmed({name: array[picks] for name, array in source.items()}, self.least)


def trimmed(inputs: Mapping[str, Array], least: int = 1, marked_by: str = "attention_mask") -> dict[str, Array]:
    """Without the padding that every sample of the batch has at its end, as far as ``least`` allows. Fractions mark
    nothing: of a sound 0 is silence, and no padding."""
    mask = inputs.get(marked_by)
    if mask is None or mask.ndim != 2 or mask.dtype.kind == "f" or not mask.any():
        return dict(inputs)
    length = max(least, int(np.flatnonzero(mask.any(axis=0)).max()) + 1)
    return {name: np.ascontiguousarray(array[:, :length]) if array.shape[:2] == mask.shape else array
            for name, array in inputs.items()}


def sample_set(file: SampleFile, model: SourceModel, where: DataField = EVALUATION,
               batch: int = GATE_BATCH) -> SampleSet:
    """Raises :class:`UserError` ``EvaluationDataInvalid`` or ``CalibrationDataInvalid``."""
    if file.texts and model.tokenize is None:
        raise where.invalid("the file holds texts, but the model brings no tokenizer", "text",
                            "give tokenised arrays named as the inputs, or put the tokenizer's files beside the model")
    checked = check_against(file, model.interface, where, missing=takes_missing(model)).distinct()
    batches, order = (_text_batches(checked.texts, model, batch) if checked.texts else
                      _row_batches(checked.rows, batch))
    batches, kept = _distinct(batches, set())
    columns = checked.picked([order[place] for place in kept]).columns if checked.columns else {}
    return SampleSet(batches=batches, count=len(kept), origin=HELD_OUT, repeated=len(file) - len(kept), columns=columns,
                     least=least_length(model.interface), left_out=checked.left_out, rounded=checked.rounded)


def least_length(interface: Interface) -> int:
    """Of the mask: all of it, where the model has one length."""
    shape = next((spec.shape[1:] for spec in interface.inputs if spec.name == "attention_mask"), ())
    return size_range(shape[0])[0] if shape else 1


def gate_samples(evaluation: SampleFile | None, calibration: SampleFile | None, accuracy: AccuracyRequest,
                 model: SourceModel, max_batch_size: int) -> tuple[SampleSet, Sequence[Tensors]]:
    """What candidates are tried on, and what they are calibrated on, apart from it, in batches of at most
    ``max_batch_size``: engines are built for no more. Raises :class:`UserError` ``EvaluationTooSmall`` where the
    model tells fewer samples apart than the file does, and what sets raise."""
    batch = min(GATE_BATCH, max_batch_size)
    tried = (sample_set(evaluation, model, batch=batch) if evaluation else
             synthetic_set(model, synthetic_samples(accuracy.tolerance, SYNTHETIC_SAMPLES), batch=batch))
    if evaluation:
        check_gate(accuracy.metric, accuracy.tolerance, tried.count)
        if accuracy.task:
            check_units(accuracy.task, len(set(queries_of(tried.columns))) or tried.count)
    if calibration is None:
        return tried, ()
    return tried, held_apart(sample_set(calibration, model, CALIBRATION, batch), tried).batches


def held_apart(calibration: SampleSet, evaluation: SampleSet) -> SampleSet:
    """Calibration without what the evaluation holds, compared as the model sees it: texts that are tokenised alike,
    tokens that another file gives as text. Raises :class:`UserError` ``CalibrationEqualsEvaluation``."""
    seen = set(_keys(evaluation.batches))
    batches, kept = _distinct(calibration.batches, seen)
    count = len(kept)
    check_overlap(calibration.count - count, evaluation.count, calibration.count)
    return SampleSet(batches=batches, count=count, origin=calibration.origin, repeated=calibration.repeated)


def _distinct(batches: Sequence[Tensors], seen: set[str]) -> tuple[list[Tensors], list[int]]:
    """Without samples whose key is in ``seen`` or came before; and the places of those that are left, counted through
    all batches."""
    seen, kept, places, start = set(seen), list[Tensors](), list[int](), 0
    for batch in batches:
        fresh = []
        for index, key in enumerate(_keys([batch])):
            if key not in seen:
                seen.add(key)
                fresh.append(index)
        if fresh:
            kept.append({name: array[fresh] for name, array in batch.items()})
        places += [start + index for index in fresh]
        start += len(next(iter(batch.values())))
    return kept, places


def _keys(batches: Sequence[Tensors]) -> Iterator[str]:
    for batch in batches:
        for index in range(len(next(iter(batch.values())))):
            yield row_key({name: array[index] for name, array in batch.items()})


def synthetic_set(model: SourceModel, count: int, seed: int = 0, batch: int = GATE_BATCH) -> SampleSet:
    sizes = [min(batch, count - start) for start in range(0, count, batch)]
    usual = usual_size(model.interface, DEFAULT_SIZE)
    batches = [example_inputs(model.interface, size, seed + index, size=usual, vocabulary=model.vocabulary,
                              end_token=end_token(model), pad_token=pad_token(model), rows=table_rows(model))
               for index, size in enumerate(sizes)]
    return SampleSet(batches=batches, count=count, origin=SYNTHETIC)


def _text_batches(texts: Sequence[str], model: SourceModel, batch: int) -> tuple[list[Tensors], list[int]]:
    """Sorted by length: neighbours need little padding, which is time saved in every forward pass. With the order."""
    assert model.tokenize is not None  # the caller has looked
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    return [model.tokenize([texts[place] for place in order[start:start + batch]])
            for start in range(0, len(order), batch)], order


def _row_batches(rows: Sequence[Mapping[str, Array]], batch: int) -> tuple[list[Tensors], list[int]]:
    """Stacks what is of equal shape: samples of free size are never padded, as the padding is not stated. With the
    order."""
    batches: list[Tensors] = []
    group: list[Mapping[str, Array]] = []
    order = sorted(range(len(rows)), key=lambda place: _shapes(rows[place]))
    for row in (rows[place] for place in order):
        if group and (len(group) == batch or any(row[name].shape != group[0][name].shape for name in row)):
            batches.append(_stack(group))
            group = []
        group.append(row)
    return [*batches, _stack(group)], order


def _stack(rows: Sequence[Mapping[str, Array]]) -> Tensors:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _shapes(row: Mapping[str, Array]) -> list[tuple[int, ...]]:
    return [row[name].shape for name in sorted(row)]
