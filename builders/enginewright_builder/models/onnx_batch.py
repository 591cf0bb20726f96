"""Whether an ONNX graph takes several samples in one call, which is tried out: many are frozen to a batch in their
declared shapes only, and in others what stands in front is no batch.

A graph whose samples answer alike alone and beside others takes batches. Any other is called as its shapes say, and its
requests are never joined."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError, first_line, known_or, lacks_memory
from enginewright_builder.models.onnx_tidy import save
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.onnx_interface import freed_interface, frozen_batch, one_answer
from enginewright_builder.ort_session import OrtRunner
from enginewright_builder.shapes import BATCH, ROWS, shape_text, takes_batches
from enginewright_builder.tensors import Array, Tensors, count

# A batch that no size of a graph is likely to be.
TRIED = 3
# Two runs of one graph at different batch sizes may sum in another order; more than this is another answer. Where the
# graph itself says that the batch is free it is believed further: one that rounds to 8 bits by what a batch holds
# differs by some per cent.
SAME, _ALIKE = 1e-3, 0.1

Opened = Callable[[Path, Interface], OrtRunner]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settled:
    """The graph at ``path`` has ``interface``, with the batch in front where it takes batches; else ``notes`` say why
    not."""

    path: Path
    interface: Interface
    notes: tuple[str, ...] = ()


def settled(path: Path, called: str, found: Interface, folder: Path, vocabulary: int, opened: Opened) -> Settled:
    """``called`` is the user's own file. Writes into ``folder``. Raises :class:`UserError` ``InterfaceInvalid`` where
    the graph fails on inputs of its own shapes, and what ``opened`` raises."""
    why = _without_batch(found)
    for candidate in () if why else _candidates(path, found, folder):
        if not (why := _dependence(candidate, path, called, found, vocabulary, opened)):
            return candidate
    whole = _whole(found)
    try_whole(path, called, whole, vocabulary, opened)
    return Settled(path=path, interface=whole, notes=(_note(called, found, why),))


def _without_batch(found: Interface) -> str:
    """Why shapes alone say that there is no batch; empty where there may be one."""
    if takes_batches(found) or frozen_batch(found) or one_answer(found):
        return ""
    specs = ", ".join(f"{spec.name} {shape_text(spec.shape)}" for spec in (*found.inputs, *found.outputs))
    return f"not every input and output has the batch in front ({specs})"


def _candidates(path: Path, found: Interface, folder: Path) -> Iterator[Settled]:
    if takes_batches(found):
        yield Settled(path=path, interface=found)
        return
    fixed = frozen_batch(found)
    free = freed_interface(found)
    for name, reshapes in (("free-batch", False), ("free-reshapes", True))[:2 if fixed else 1]:
        model = onnx.load(str(path))
        for value in (*model.graph.input, *model.graph.output):
            if value.type.tensor_type.shape.dim:
                value.type.tensor_type.shape.dim[0].dim_param = BATCH
        del model.graph.value_info[:]
        if reshapes:
            _free(model, fixed)
        freed = folder / f"{path.stem}.{name}.onnx"
        save(model, freed)
        yield Settled(path=freed, interface=free)


def _free(model: onnx.ModelProto, fixed: int) -> None:
    """Targets of Reshapes that begin with the batch: it is what is left over, or what came in."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    constants.update({node.output[0]: node.attribute[0].t for node in model.graph.node
                      if node.op_type == "Constant" and node.attribute[0].name == "value"})
    for index, node in enumerate(model.graph.node):
        if node.op_type != "Reshape" or node.input[1] not in constants:
            continue
        target = numpy_helper.to_array(constants[node.input[1]]).copy()
        if target.ndim == 1 and len(target) and target[0] == fixed:
            target[0] = 0 if -1 in target else -1
            name = f"enginewright__target_{index}"
            model.graph.initializer.append(numpy_helper.from_array(target, name))
            node.input[1] = name


def _dependence(loose: Settled, path: Path, called: str, found: Interface, vocabulary: int, opened: Opened) -> str:
    """Why samples of ``loose`` are not answered alike alone and beside others; empty where they are. A graph that is
    frozen says itself what it answers. Raises as :func:`_check_steady` does."""
    fixed = 0 if takes_batches(found) else frozen_batch(found)
    samples = TRIED * max(1, fixed)
    inputs = example_inputs(loose.interface, samples, vocabulary=vocabulary)
    try:
        runner = opened(loose.path, loose.interface)
        alone = _in_calls_of(1, runner, inputs)
        expected = _in_calls_of(fixed, opened(path, loose.interface), inputs) if fixed else alone
        together, again = runner(inputs), runner(inputs)
    except Exception as error:  # ONNX Runtime's own classes, whatever the graph trips over
        if lacks_memory(error):  # it says nothing of the graph
            raise
        return f"it fails at another batch: {first_line(error)}"
    _check_steady(called, together, again)
    most = _ALIKE if takes_batches(found) else SAME
    for name, answers in expected.items():
        if len(answers) != samples or together[name].shape[:1] != (samples,):
            return f"output {name!r} has the shape {list(together[name].shape)} for {samples} samples"
        if max(distance(answers, other[name]) for other in (alone, together)) > most:
            return "its answers depend on what else is in the batch"
    return ""


def _in_calls_of(batch: int, runner: OrtRunner, inputs: Tensors) -> dict[str, Array]:
    calls = [runner({name: array[start:start + batch] for name, array in inputs.items()})
             for start in range(0, count(inputs), batch)]
    return {name: np.concatenate([np.atleast_1d(call[name]) for call in calls]) for name in calls[0]}


def distance(expected: Array, got: Array) -> float:
    """As a share of ``expected``'s size; of what is no floating-point number the share that differs."""
    if expected.shape != got.shape:
        return float("inf")
    if expected.dtype.kind != "f":
        return float(np.mean(expected != got)) if expected.size else 0.0
    one, other = expected.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)):
        return float("inf")
    size = float(np.linalg.norm(one[finite]))
    apart = float(np.linalg.norm(one[finite] - other[finite]))
    return apart / size if size else apart


def _whole(found: Interface) -> Interface:
    """With the batch, if it looked like one, by another name."""
    if not takes_batches(found):
        return found

    def renamed(spec: TensorSpec) -> TensorSpec:
        return dataclasses.replace(spec, shape=tuple(ROWS if size == BATCH else size for size in spec.shape))

    return Interface(inputs=tuple(map(renamed, found.inputs)), outputs=tuple(map(renamed, found.outputs)))


def try_whole(path: Path, called: str, whole: Interface, vocabulary: int, opened: Opened) -> None:
    """That the graph runs on one call of the shapes ``whole``. Raises :class:`UserError` ``InterfaceInvalid``, and as
    :func:`_check_steady` does."""
    inputs: Tensors = example_inputs(whole, 1, vocabulary=vocabulary)
    runner = opened(path, whole)
    try:
        once, again = runner(inputs), runner(inputs)
    except Exception as error:  # ONNX Runtime's own classes
        shapes = ", ".join(f"{name} {list(array.shape[1:])}" for name, array in inputs.items())
        raise known_or(error, UserError(
            "InterfaceInvalid", f"{called} fails on made-up inputs of its own shapes ({shapes}): {first_line(error)}",
            field="spec.interface.inputs", value=shapes,
            remedy="write the sizes that it takes into spec.interface.inputs, as numbers or ranges"
                   f"{_of_one_value(whole)}")) from error
    _check_steady(called, once, again)


def _check_steady(called: str, once: Tensors, again: Tensors) -> None:
    """Raises :class:`UserError` ``UnsupportedModel`` where one call is answered in two ways: no engine could be held
    against such a source."""
    for name, answers in once.items():
        if distance(answers, again[name]) > SAME:
            raise UserError("UnsupportedModel", f"{called} answers the same call in another way each time: output "
                            f"{name!r} differs", field="spec.source.uri", value=name,
                            remedy="export it for inference (model.eval() in PyTorch), without random numbers and "
                                   "without Dropout in training mode")


def _of_one_value(whole: Interface) -> str:
    """Made-up numbers seldom are what a graph branches on, such as a sampling rate."""
    alone = [repr(spec.name) for spec in whole.inputs if spec.shape == (1,)]
    return f"; where {' or '.join(alone)} is the same in every request, write that as its value" if alone else ""


def _note(called: str, found: Interface, why: str) -> str:
    fixed = 0 if takes_batches(found) else frozen_batch(found)
    if fixed:
        holds = f"{fixed} samples" if fixed > 1 else "one sample"
        return (f"{called} is frozen to a batch of {fixed}: {why}. So each request is one call with {holds}, and the "
                "server joins no requests. Exported with a free first dimension it could join up to "
                "spec.engine.maxBatchSize samples")
    return f"{called} takes no batches: {why}. So each request is one call, and the server joins no requests"
