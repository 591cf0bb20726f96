"""Columns of the evaluation data beside inputs, in the types that the gate compares: labels, queries, groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from enginewright_builder.accuracy.groups import Groups
from enginewright_builder.accuracy.task_rules import (
    CLASSIFICATION,
    DETECTION,
    F1_METRICS,
    IGNORED,
    WER,
    invalid,
    labels_invalid,
)
from enginewright_builder.accuracy.vocabulary import Vocabulary
from enginewright_builder.contract import AccuracyRequest, TaskRequest, as_written, quoted
from enginewright_builder.data.files import SampleFile
from enginewright_builder.errors import UserError
from enginewright_builder.sources.meanings import class_names, speech_tokens
from enginewright_builder.tensors import Array

_BLANKS = ("[PAD]", "<blank>", "")
# Of one object.
_NUMBERS = 5
_OBJECT = ("write for each object [class, x_min, y_min, x_max, y_max], with a class from 0 on, or its name, and a box "
           "that has an area, in the unit of the boxes that are served")
# How converted columns are called: a file may have one column for two of them.
_LABELS, _QUERIES, _GROUPS = "labels", "queries", "groups"


def check_columns(samples: SampleFile, accuracy: AccuracyRequest, source: Path) -> SampleFile:
    """``samples`` with labels, queries and groups in the types of their use. Raises :class:`UserError`
    ``LabelsInvalid``, ``TaskInvalid`` or ``GroupByInvalid``."""
    columns: dict[str, tuple[Any, ...]] = {}
    task = accuracy.task
    if task is not None:
        columns[_LABELS] = _converted(samples, task, source)
        if task.queries:
            columns[_QUERIES] = _words(samples, task.queries, _query_invalid)
    if accuracy.group_by:
        columns[_GROUPS] = _words(samples, accuracy.group_by, _group_invalid)
        if task is not None and task.queries:
            _check_queries(columns[_QUERIES], columns[_GROUPS], accuracy.group_by)
    return replace(samples, columns=columns)


def contradictions(samples: SampleFile) -> int:
    """How many samples are there again with another label than the first time."""
    labels, first = labels_of(samples.columns), dict[str, int]()
    if not labels:
        return 0
    return sum(not np.array_equal(labels[first.setdefault(key, place)], labels[place])
               for place, key in enumerate(samples.keys()))


def labels_of(columns: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    return columns.get(_LABELS, ())


def queries_of(columns: Mapping[str, tuple[Any, ...]]) -> tuple[str, ...]:
    return columns.get(_QUERIES, ())


def groups_of(columns: Mapping[str, tuple[Any, ...]], by: str) -> Groups | None:
    """None where no groups are asked for."""
    return Groups(by=by, of_sample=columns[_GROUPS]) if by and _GROUPS in columns else None


def vocabulary(task: TaskRequest, source: Path) -> Vocabulary | None:
    """Of a model for speech; None for other metrics. Raises :class:`UserError` ``TaskInvalid``."""
    if task.metric != WER:
        return None
    tokens, blank, space = speech_tokens(source)
    found = next((name for name in (blank, *_BLANKS) if name in tokens), None)
    if found is None:
        raise invalid(f"the source has no vocab.json with {blank!r} in it, so its answers cannot be read as words",
                      "metric", task.metric, "put the tokenizer's vocab.json beside the model, and let spec.source.uri "
                                             "name the folder")
    size = max(tokens.values()) + 1
    names = {number: token for token, number in tokens.items()}
    special = {found, *(token for token in tokens if token.startswith(("<", "[")) and token.endswith((">", "]")))}
    return Vocabulary(tokens=tuple("" if names.get(number, "") in special else names.get(number, "")
                                   for number in range(size)), blank=tokens[found], space=space)


def _converted(samples: SampleFile, task: TaskRequest, source: Path) -> tuple[Any, ...]:
    values = _column(samples, task.labels, labels_invalid)
    if task.metric == WER:
        return tuple(_text(value, place) for place, value in enumerate(values))
    if task.metric not in (*CLASSIFICATION, *DETECTION):
        return tuple(_numbers(value, place) for place, value in enumerate(values))
    names = class_names(source)
    if task.metric in DETECTION:
        return _with_some(tuple(_objects(value, names, place) for place, value in enumerate(values)))
    found = tuple(_classes(value, names, task, place) for place, value in enumerate(values))
    for place, label in enumerate(found):
        if label.ndim != found[0].ndim:
            raise labels_invalid(f"sample {place}: the label is {_show(values[place])}, that of sample 0 "
                                 f"{_show(values[0])}", _show(values[place]),
                                 "write one class for each sample, or a list for each")
    return found


def _column(samples: SampleFile, name: str, invalid_column: Callable[[str, object, str], UserError]) -> tuple[Any, ...]:
    if name in samples.columns:
        return samples.columns[name]
    has = sorted({*samples.columns, *(samples.rows[0] if samples.rows else ("text",))})
    raise invalid_column(f"the evaluation data have no {name!r}; they have {', '.join(has)}", name,
                         "name an array of the .npz or a field of each line of the .jsonl, or add it")


def _text(value: Any, place: int) -> str:
    if not isinstance(value, str) or not value.split():
        raise labels_invalid(f"sample {place}: the label is {_show(value)}, and word error rate compares words",
                             _show(value), "write what is said as text, one string for each sample")
    return str(value)


def _numbers(value: Any, place: int) -> Array:
    found = _array(value, place)
    if found.dtype.kind not in "biuf":
        raise labels_invalid(f"sample {place}: the label is {_show(value)}, expected numbers", _show(value),
                             "write one number, or a list of them, for each sample")
    return found.astype(np.float64)


def _with_some(found: tuple[Array, ...]) -> tuple[Array, ...]:
    if found and not any(map(len, found)):
        raise labels_invalid("no sample has an object", 0, "give images with the objects in them that the model is to "
                                                           "find")
    return found


def _objects(value: Any, names: Mapping[str, int], place: int) -> Array:
    """``[objects, 5]``: class and corners. An array of the .npz is filled up with rows of class -100."""
    rows = list(value) if isinstance(value, list | tuple | np.ndarray) else [value]
    for row in rows:
        if not isinstance(row, list | tuple | np.ndarray) or len(row) != _NUMBERS:
            raise labels_invalid(f"sample {place}: an object is {_show(row)}", _show(row), _OBJECT)
    if unknown := [row[0] for row in rows if isinstance(row[0], str) and row[0] not in names]:
        raise labels_invalid(f"sample {place}: class {quoted(unknown[0])} is not one of the source's", unknown[0],
                             "write one that config.json has in label2id, or the class's number")
    try:
        table: Array = np.array([[names.get(row[0], row[0]), *row[1:]] if isinstance(row[0], str) else row
                                 for row in rows], np.float64).reshape(-1, _NUMBERS)
    except (TypeError, ValueError) as error:
        raise labels_invalid(f"sample {place}: objects are {_show(value)}", _show(value), _OBJECT) from error
    table = np.asarray(table[table[:, 0] != IGNORED])
    whole = np.isfinite(table).all(axis=1) & (table[:, 0] >= 0) & (table[:, 0] == np.trunc(table[:, 0]))
    broken = np.flatnonzero(~whole | (table[:, 3] <= table[:, 1]) | (table[:, 4] <= table[:, 2]))
    if len(broken):
        raise labels_invalid(f"sample {place}: an object is {_show(table[broken[0]].tolist())}",
                             _show(table[broken[0]].tolist()), _OBJECT)
    most = max(names.values(), default=None)
    if most is not None and len(table) and table[:, 0].max() > most:
        raise labels_invalid(f"sample {place}: class {table[:, 0].max():g} is unknown to the source, whose config.json "
                             f"names {most + 1}", f"{table[:, 0].max():g}", f"write classes from 0 to {most}")
    return table


def _classes(value: Any, names: Mapping[str, int], task: TaskRequest, place: int) -> Array:
    found = _array(value, place)
    if found.dtype.kind == "U" or (names and found.shape == (0,)):
        return _named(found, names, task, place)
    whole = found.dtype.kind in "biu" or (found.dtype.kind == "f" and bool(np.isfinite(found).all())
                                          and bool((found == np.trunc(found)).all()))
    if not whole:
        raise labels_invalid(f"sample {place}: the label is {_show(value)}, and {task.metric} takes classes",
                             _show(value), "write whole numbers from 0 on, names that the source's config.json has in "
                                           "label2id, or metric mae or rmse for numbers")
    classes = found.astype(np.int64)
    most = max(names.values(), default=None)
    if most is not None and classes.size and classes.max() > most:
        raise labels_invalid(f"sample {place}: class {classes.max()} is unknown to the source, whose config.json names "
                             f"{most + 1}", int(classes.max()), f"write classes from 0 to {most}")
    return classes


def _named(found: Array, names: Mapping[str, int], task: TaskRequest, place: int) -> Array:
    """Names as numbers; a list of names as 0 or 1 for each class where a sample may have several."""
    if unknown := [name for name in found.ravel().tolist() if name not in names]:
        known = ", ".join(list(names)[:10]) + (" …" if len(names) > 10 else "")
        raise labels_invalid(f"sample {place}: class {quoted(unknown[0])} is not one of the source's "
                             f"({known or 'it names none'})", unknown[0], "write one of these names" if names else
                             "write numbers of classes, or name them in label2id of config.json beside the model")
    numbers = np.vectorize(lambda name: names[name], otypes=[np.int64])(found)
    if found.ndim == 1 and task.metric in F1_METRICS:
        return np.isin(np.arange(max(names.values()) + 1), numbers).astype(np.int64)
    return np.asarray(numbers, np.int64)


def _array(value: Any, place: int) -> Array:
    try:
        found = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise labels_invalid(f"sample {place}: the label is not rectangular: {error}", _show(value),
                             "write one value, or a full list, for each sample") from error
    if found.dtype.kind not in "biufU":
        raise labels_invalid(f"sample {place}: the label is {_show(value)}", _show(value),
                             "write a number, a name, or a list of one of them")
    return found


def _words(samples: SampleFile, name: str, invalid_column: Callable[[str, object, str], UserError]) -> tuple[str, ...]:
    """Values that tell samples apart: words or whole numbers."""
    found = []
    for place, value in enumerate(_column(samples, name, invalid_column)):
        one = value.item() if isinstance(value, np.generic) else value
        if isinstance(one, float) and one.is_integer():
            one = int(one)
        if not isinstance(one, str | int) or one == "":
            raise invalid_column(f"sample {place}: {name} is {_show(value)}, expected a word or a whole number",
                                 _show(value), "write one for each sample, such as de; of a measure, the range that it "
                                               "is in")
        found.append(str(one))
    return tuple(found)


def _check_queries(queries: tuple[str, ...], groups: tuple[str, ...], by: str) -> None:
    first: dict[str, str] = {}
    for query, group in zip(queries, groups, strict=True):
        if first.setdefault(query, group) != group:
            raise _group_invalid(f"the samples of query {query} are in the groups {first[query]} and {group}", by,
                                 "name a field that is the same for all samples of a query")


def _query_invalid(message: str, value: object, remedy: str) -> UserError:
    return invalid(message, "queries", value, remedy)


def _group_invalid(message: str, value: object, remedy: str) -> UserError:
    return UserError("GroupByInvalid", message, field="spec.accuracy.groupBy", value=value, remedy=remedy)


def _show(value: Any) -> str:
    """An array is as a list of it is."""
    return as_written(value.tolist() if isinstance(value, np.ndarray | np.generic) else value)[:60]
