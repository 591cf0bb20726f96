"""How tensors lie in compiled PyTorch: convolutions as tensor cores want them, in NHWC, also where the batch size is
free.

PyTorch's compiler chooses NHWC by itself where it knows all sizes, and refuses it as soon as one is free
(``decide_layout_opt`` in its ``_inductor/graph.py``, pytorch issue 102670). So it is asked about the example's sizes,
and its answer holds for all.
"""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch

from enginewright_builder.models.base import TorchProgram

log = logging.getLogger(__name__)

# Dimensions of the weights of a convolution over two, which alone has an NHWC.
_PLANAR = 4
_CONVOLUTIONS = (torch.ops.aten.conv2d.default, torch.ops.aten.conv2d.padding, torch.ops.aten.convolution.default)


def arranged(program: TorchProgram) -> tuple[torch.export.ExportedProgram, dict[str, Any]]:
    """The exported program, and the compiler's settings for its layout. Raises what ``torch.export`` raises of the
    program as it is."""
    exported = _export(program.module, program)
    if any(one.is_cuda for one in program.args) and prefers_channels_last(exported, program.args):
        return turned(exported, program)
    return exported, {}


def turned(exported: torch.export.ExportedProgram,
           program: TorchProgram) -> tuple[torch.export.ExportedProgram, dict[str, Any]]:
    """``exported`` in NHWC, or as it is where that cannot be had: a module that cannot be copied, no room for a copy.

    The weights of convolutions lie so already, or each call would turn them; nothing else does, as it may be taken for
    a view elsewhere. The program's module stays as it is.
    """
    parameters = exported.graph_signature.inputs_to_parameters
    weights = {parameters.get(getattr(node.args[1], "name", "")) for node in exported.graph.nodes
               if node.target in _CONVOLUTIONS}
    try:
        copied = copy.deepcopy(program.module)
        for name, parameter in copied.named_parameters():
            if name in weights and parameter.dim() == _PLANAR:
                parameter.data = parameter.data.to(memory_format=torch.channels_last)
        return _export(copied, program), {"force_layout_optimization": True}
    except Exception as error:
        log.warning("convolutions stay in NCHW", exc_info=error)
        return exported, {}


def _export(module: torch.nn.Module, program: TorchProgram) -> torch.export.ExportedProgram:
    return torch.export.export(module, program.args, dynamic_shapes=program.dynamic_shapes, strict=False)


def prefers_channels_last(exported: torch.export.ExportedProgram, args: tuple[torch.Tensor, ...]) -> bool:
    """Whether the compiler would compute the program's convolutions in NHWC if the sizes of ``args`` were its only
    ones. False where it cannot be asked."""
    from torch._inductor.graph import GraphLowering
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    if not any(tensor.dim() == _PLANAR for tensor in exported.state_dict.values()):
        return False
    try:
        graph = exported.run_decompositions().module()
        FakeTensorProp(graph, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*args)
        return bool(GraphLowering.decide_layout_opt(graph, is_inference=True))
    except Exception as error:  # parts of PyTorch without promises; its own default is no error
        log.warning("the layout of convolutions is left to the compiler", exc_info=error)
        return False
