"""What ``torch.export`` makes of a source model, as its package will compute it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from enginewright_builder.models.base import SourceModel
from enginewright_builder.models.torch_base import export_failed, quiet
from enginewright_builder.models.torch_precision import tf32
from enginewright_builder.tensors import Tensors


@dataclass(frozen=True, kw_only=True)
class Traced:
    """``run`` takes arrays by the names of the interface's inputs and answers by those of its outputs; ``size_bytes``
    is that of the weights."""

    run: Callable[[Tensors], Tensors]
    size_bytes: int


def traced(model: SourceModel) -> Traced:
    """Raises :class:`UserError` ``ExportFailed`` for what PyTorch cannot trace."""
    program = model.torch_program("fp32")
    assert program is not None  # asked for sources alone that have one
    try:
        with quiet(), torch.no_grad():
            module = torch.export.export(program.module, program.args, dynamic_shapes=program.dynamic_shapes).module()
    except Exception as error:  # of the model, or of the exporter, in many classes
        raise export_failed(error, model.interface) from error
    places = [(spec.name, argument.device) for spec, argument in zip(model.interface.inputs, program.args, strict=True)]

    def run(inputs: Tensors) -> Tensors:
        given = [torch.from_numpy(np.ascontiguousarray(inputs[name])).to(device) for name, device in places]
        with torch.inference_mode(), tf32(False):
            answers = module(*given)
        return {spec.name: answer.cpu().numpy() for spec, answer in zip(model.interface.outputs, answers, strict=True)}

    return Traced(run=run, size_bytes=sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers())))
