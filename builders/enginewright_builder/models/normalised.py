"""A source that takes bytes: the user's own behind the normalisation that engines have folded in.

The reference stays honest: the source itself is asked with what NumPy makes of the bytes. What is exported and traced
has the normalisation in it, and is held against that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.models.base import SourceModel, Tokenize, TorchProgram
from enginewright_builder.normalise import factors, normalised, order, sent
from enginewright_builder.onnx_normalise import fold
from enginewright_builder.tensors import Call, Tensors


class Normalised:
    """``inner`` with inputs as ``stated`` says that clients send them."""

    def __init__(self, inner: SourceModel, stated: Interface) -> None:
        self._inner = inner
        specs = {spec.name: spec for spec in stated.inputs if spec.normalise is not None}
        self.interface = Interface(
            inputs=tuple(sent(spec, specs[spec.name]) if spec.name in specs else spec
                         for spec in inner.interface.inputs),
            outputs=inner.interface.outputs)
        self._specs = {spec.name: spec for spec in self.interface.inputs if spec.normalise is not None}

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def tokenize(self) -> Tokenize | None:
        return self._inner.tokenize

    @property
    def vocabulary(self) -> int:
        return self._inner.vocabulary

    @property
    def notes(self) -> tuple[str, ...]:
        return self._inner.notes

    @property
    def candidate(self) -> str:
        return self._inner.candidate

    def run(self, inputs: Tensors) -> Tensors:
        return self._inner.run(self._taken(inputs))

    def bind(self, inputs: Tensors) -> Call:
        """Without the normalisation, which a client of the source does before."""
        return self._inner.bind(self._taken(inputs))

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        self._inner.export_onnx(path, opset, precision)
        fold(path, self._specs.values())

    def torch_program(self, precision: str, batch: int = 0) -> TorchProgram | None:
        program = self._inner.torch_program(precision, batch)
        return None if program is None else _traced(program, [self._specs.get(spec.name)
                                                              for spec in self.interface.inputs])

    def _taken(self, inputs: Tensors) -> Tensors:
        return {name: normalised(self._specs[name], array) if name in self._specs else array
                for name, array in inputs.items()}


def _traced(program: TorchProgram, specs: list[TensorSpec | None]) -> TorchProgram:
    """``program`` for bytes, where there is a spec, one for each input."""
    import torch

    class Normalising(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = program.module
            for index, (spec, example) in enumerate(zip(specs, program.args, strict=True)):
                if spec is not None and spec.normalise is not None:
                    for name, array in zip(("scale", "shift"), factors(spec.normalise, len(spec.shape)), strict=True):
                        self.register_buffer(f"{name}_{index}", torch.from_numpy(array).to(example.device))

        def forward(self, *inputs: Any) -> Any:
            return self.inner(*(
                value if spec is None else value.permute(order(spec)).to(torch.float32)
                * getattr(self, f"scale_{index}") + getattr(self, f"shift_{index}")
                for index, (spec, value) in enumerate(zip(specs, inputs, strict=True))))

    args, shapes = [], []
    for spec, example, free in zip(specs, program.args, program.dynamic_shapes["inputs"], strict=True):
        if spec is None:
            args.append(example)
            shapes.append(free)
            continue
        axes = order(spec)
        back = [axes.index(axis) for axis in range(len(axes))]
        args.append((example.permute(back) * 64 + 128).clamp(0, 255).to(torch.uint8).contiguous())
        shapes.append({axes[axis]: size for axis, size in free.items()})
    module = Normalising()
    module.training = False  # eval() would ask the inner module, too, and a program that was exported refuses
    return TorchProgram(module=module, args=tuple(args), dynamic_shapes={"inputs": tuple(shapes)})
