"""A source whose outputs are processed before clients get them: the user's own, with steps that engines have folded in.

The reference is what NumPy makes, in FP64, of the source's own answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from enginewright_builder.best_few import indices_of
from enginewright_builder.contract import Interface, PostprocessStep
from enginewright_builder.detection import OBJECT_DETECTION, Plan, detected
from enginewright_builder.models.base import SourceModel, TorchProgram
from enginewright_builder.models.wrapped import Wrapped
from enginewright_builder.onnx_postprocess import fold_outputs
from enginewright_builder.postprocess import (
    ALONE,
    ARG_MAX,
    LEAST_NORM,
    LEAST_TOKENS,
    MEAN_POOLING,
    TOP_K,
    Decode,
    applied,
    best_axis,
    detection_of,
    finished,
)
from enginewright_builder.tensors import Call, Tensors


class Finished(Wrapped):
    """``inner`` behind ``steps``. Raises :class:`UserError` ``InterfaceInvalid`` for steps that do not fit its
    outputs."""

    def __init__(self, inner: SourceModel, steps: Sequence[PostprocessStep], decode: Decode = detected) -> None:
        """``decode`` is the source's own processor, where that says what boxes are."""
        super().__init__(inner)
        self._steps, self._decode = tuple(steps), decode
        self._boxes = detection_of(steps, inner.interface)
        self.interface: Interface = finished(inner.interface, steps)

    def run(self, inputs: Tensors) -> Tensors:
        return applied(self._steps, inputs, self._inner.run(inputs), self._boxes, self._decode)

    def run_as_exported(self, inputs: Tensors) -> Tensors:
        run = getattr(self._inner, "run_as_exported", self._inner.run)
        return applied(self._steps, inputs, run(inputs), self._boxes, self._decode)

    def bind(self, inputs: Tensors) -> Call:
        """Without the steps, which a client of the source does after."""
        return self._inner.bind(inputs)

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        self._inner.export_onnx(path, opset, precision)
        fold_outputs(path, self._steps, self.interface, self._boxes)

    def torch_program(self, precision: str, batch: int = 0) -> TorchProgram | None:
        if self._boxes and self._boxes.how.nms_threshold:
            return None
        program = self._inner.torch_program(precision, batch)
        return None if program is None else _traced(program, self._steps, self._inner.interface, self._boxes)


def _traced(program: TorchProgram, steps: Sequence[PostprocessStep], interface: Interface, boxes: Plan | None
            ) -> TorchProgram:
    import torch

    from enginewright_builder.models import torch_detection

    names, outputs = ([spec.name for spec in side] for side in (interface.inputs, interface.outputs))

    class Finishing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = program.module

        def forward(self, *inputs: Any) -> Any:
            answers = dict(zip(outputs, self.inner(*inputs), strict=True))
            types = {name: values.dtype for name, values in answers.items()}
            made: dict[str, Any] = {}
            if boxes:
                sizes = boxes.how.target_sizes
                made = torch_detection.detected(boxes, inputs[names.index(sizes)] if sizes else None, answers)
                answers = {name: values for name, values in answers.items() if name not in boxes.consumed}
            for step in steps:
                if step.function == OBJECT_DETECTION:
                    continue
                values = _wide(answers[step.output])
                if step.function == TOP_K:
                    answers[step.output], answers[indices_of(step.output)] = _best_few(step, values)
                    continue
                mask = inputs[names.index(step.mask)] if step.function == MEAN_POOLING else None
                answers[step.output] = _made(step, values, mask)
            own = (values.to(types[name]) if values.is_floating_point() else values for name, values in answers.items())
            return (*own, *made.values())

    module = Finishing()
    module.training = False  # eval() would ask the inner module, too, and a program that was exported refuses
    return dataclasses.replace(program, module=module)


def _wide(values: Any) -> Any:
    """In FP32 at least: half precision sums up too little of many numbers, and has ties that are none."""
    import torch

    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _best_few(step: PostprocessStep, values: Any) -> tuple[Any, Any]:
    """A stable sort, as PyTorch's own ``topk`` gives equals in any order."""
    import torch

    scores, places = values.sort(dim=-1, descending=True, stable=True)
    return scores[:, :step.k], places[:, :step.k].to(torch.int32)


def _made(step: PostprocessStep, values: Any, mask: Any) -> Any:
    import torch

    if step.function == ARG_MAX:
        alone = values.dim() == ALONE
        return values.argmax(dim=best_axis(step, values.dim()), keepdim=alone).to(torch.int32)
    if step.function == "softmax":
        return values.softmax(dim=-1)
    if step.function == "sigmoid":
        return values.sigmoid()
    if step.function == MEAN_POOLING:
        counted = mask.unsqueeze(-1).to(values.dtype)
        return (values * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=LEAST_TOKENS)
    return torch.nn.functional.normalize(values, dim=-1, eps=LEAST_NORM)
