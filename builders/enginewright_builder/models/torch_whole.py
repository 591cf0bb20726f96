"""PyTorch sources without a free batch in front: they are exported as they are, and go on as ONNX does. There the build
tries whether the batch can be freed, and else calls them as their shapes say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.models.onnx import OnnxModel, load_onnx
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.models.torch_base import export_failed, quiet
from enginewright_builder.models.torch_precision import flat_names, flatten
from enginewright_builder.onnx_pools import keep_zeros_in
from enginewright_builder.ort_session import OrtRunner
from enginewright_builder.tensors import Array, whole_call

# PyTorch and ONNX Runtime may sum in another order.
_SAME = 1e-3

# Writes the ONNX of example tensors to a path, its inputs and outputs called by these names.
Export = Callable[[tuple[torch.Tensor, ...], Path, list[str], list[str]], object]


def through_onnx(path: Path, what: str, inputs: Sequence[TensorSpec], outputs: Sequence[str],
                 run: Callable[..., Any], export: Export, folder: Path, device: str, values: Mapping[str, Array], *,
                 stated: bool) -> OnnxModel:
    """``path`` is the source, ``what`` it is in words, ``run`` calls it; ``outputs`` may name none. Some of ``inputs``
    may have ``values``. ``stated``: the sizes of ``inputs`` are the user's. Raises :class:`UserError` ``ExportFailed``,
    ``ExportMismatch``, and what ONNX sources do."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {**whole_call(example_inputs(Interface(inputs=tuple(inputs)), 1)), **values}
    example = tuple(torch.from_numpy(given[spec.name]) for spec in inputs)
    with quiet(), torch.inference_mode():
        answer = run(*example)
        expected = [tensor.numpy() for tensor in flatten(answer)]
    names = list(outputs) or flat_names(answer, given)
    if len(names) != len(expected):
        raise UserError("InterfaceInvalid", f"the model returns {len(expected)} outputs, {len(names)} are named",
                        field="spec.interface.outputs", value=", ".join(names), remedy="name every output, in order")
    graph = folder / f"{path.stem}.exported.onnx"
    with quiet(), torch.no_grad():
        try:
            export(example, graph, [spec.name for spec in inputs], names)
        except Exception as error:
            raise export_failed(error) from error
    keep_zeros_in(graph)
    answers = OrtRunner(graph)(given)
    for name, array in zip(names, expected, strict=True):
        if answers[name].shape != array.shape or not np.allclose(answers[name], array, rtol=_SAME, atol=_SAME):
            raise UserError("ExportMismatch", f"the export answers otherwise than {path.name}: {name!r} differs",
                            field="spec.source", value=name,
                            remedy="look for randomness in the forward pass, or give an ONNX file")
    interface = Interface(inputs=tuple(
        replace(spec, value=tuple(map(float, values[spec.name].ravel()))) if spec.name in values else spec
        for spec in inputs))
    model = load_onnx(graph, interface if stated else None, folder, device, called=path.name)
    model.name = f"{what} as exported, on ONNX Runtime"
    return model
