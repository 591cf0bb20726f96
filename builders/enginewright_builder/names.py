"""Answers that are compared by what they name, not by amounts: classes and tokens (``ids.py``), the best few classes
(``best_few.py``), detections (``same_boxes.py``). One place that says which is which."""

from __future__ import annotations

from enginewright_builder.best_few import are_best, found_share
from enginewright_builder.ids import are_ids, equal_share
from enginewright_builder.same_boxes import BOXES, Floats, agreements, are_boxes
from enginewright_builder.tensors import Tensors


def share_of_names(name: str, reference: Tensors, candidate: Tensors) -> Floats | None:
    """Of each sample, ``[batch]``, how much of output ``name`` is right; None for one that has amounts. Both of the
    same shapes."""
    if are_boxes(name, reference):
        return agreements(reference, candidate)
    if are_best(name, reference):
        return found_share(name, reference, candidate[name])
    return equal_share(reference[name], candidate[name]) if are_ids(reference[name]) else None


def have_guards(name: str, reference: Tensors) -> bool:
    """Whether output ``name`` has amounts, each in a place of its own."""
    return not (are_ids(reference[name]) or (name == BOXES and are_boxes(name, reference)))


def missed_share(name: str, reference: Tensors, candidate: Tensors) -> float | None:
    """Of all samples; None for amounts, for names that stand each in a place of its own, and for an output that the
    candidate has not, or in another size."""
    got = candidate.get(name)
    if got is None or got.size != reference[name].size or not (are_boxes(name, reference) or are_best(name, reference)):
        return None
    found = agreements(reference, candidate) if are_boxes(name, reference) else found_share(name, reference, got)
    return 1.0 - float(found.mean()) if found.size else 0.0
