"""A source that takes bytes: the user's own behind the resize, crop and normalisation that engines have folded in.

The reference stays honest: the source itself is asked with what its own processor, Pillow or NumPy makes of the bytes
(``models/processors.py``). What is exported and traced has all of it in it, and is held against that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.models.base import SourceModel, TorchProgram
from enginewright_builder.models.processors import Processor, processor
from enginewright_builder.models.wrapped import Wrapped
from enginewright_builder.normalise import factors, order, sent, taken
from enginewright_builder.onnx_preprocess import fold
from enginewright_builder.preprocess import by_products
from enginewright_builder.shapes import shape_text, size_range
from enginewright_builder.tensors import Call, Tensors


class Normalised(Wrapped):
    """``inner`` with inputs as ``stated`` says that clients send them. ``processors`` are the source's own, by input,
    where it brings any. Raises :class:`UserError` ``InterfaceInvalid`` for images that ``inner`` does not take."""

    def __init__(self, inner: SourceModel, stated: Interface, processors: Mapping[str, Processor] | None = None
                 ) -> None:
        super().__init__(inner)
        specs = {spec.name: spec for spec in stated.inputs if spec.normalise is not None}
        _check_inputs(inner.interface, specs)
        self.interface = Interface(
            inputs=tuple(sent(spec, specs[spec.name]) if spec.name in specs else spec
                         for spec in inner.interface.inputs),
            outputs=inner.interface.outputs)
        self._specs = {spec.name: spec for spec in self.interface.inputs if spec.normalise is not None}
        self._processors = {name: (processors or {}).get(name) or processor(spec)
                            for name, spec in self._specs.items()}

    def run(self, inputs: Tensors) -> Tensors:
        return self._inner.run(self._taken(inputs))

    def run_as_exported(self, inputs: Tensors) -> Tensors:
        """What the export must answer: the source behind the arithmetic of the graph, which may round a pixel the
        other way than the source's processor."""
        resized = {name: by_products(spec, inputs[name]) for name, spec in self._specs.items() if spec.preprocess}
        rest = {name: array for name, array in inputs.items() if name not in resized}
        return self._inner.run({**self._taken(rest), **resized})

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
        return {name: self._processors[name](array) if name in self._processors else array
                for name, array in inputs.items()}


def _check_inputs(own: Interface, stated: Mapping[str, TensorSpec]) -> None:
    known = {spec.name: spec for spec in own.inputs}
    for name, spec in stated.items():
        if name not in known:
            raise UserError("InterfaceInvalid", f"the model takes {', '.join(known)}, not {name}",
                            field="spec.interface.inputs", value=name, remedy="name the model's own input")
        made = taken(Interface(inputs=(spec,))).inputs[0].shape
        if spec.preprocess and made[1:] != known[name].shape[1:]:
            raise UserError("InterfaceInvalid", f"images become {shape_text(made)}, and the model takes "
                            f"{shape_text(known[name].shape)}", field=f"spec.interface.inputs[{name}].preprocess",
                            value=shape_text(made), remedy="write the size that the model takes into size, or into "
                                                           "cropSize")


def _traced(program: TorchProgram, specs: list[TensorSpec | None]) -> TorchProgram:
    """``program`` for bytes, where there is a spec, one for each input."""
    import torch

    from enginewright_builder.models.torch_resize import resized

    class Normalising(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = program.module
            for index, (spec, example) in enumerate(zip(specs, program.args, strict=True)):
                if spec is not None and spec.normalise is not None:
                    for name, array in zip(("scale", "shift"), factors(spec.normalise, len(spec.shape)), strict=True):
                        self.register_buffer(f"{name}_{index}", torch.from_numpy(array).to(example.device))

        def forward(self, *inputs: Any) -> Any:
            return self.inner(*(value if spec is None else self.taken(index, spec, value)
                                for index, (spec, value) in enumerate(zip(specs, inputs, strict=True))))

        def taken(self, index: int, spec: TensorSpec, value: Any) -> Any:
            value = value.permute(order(spec)).to(torch.float32)
            if spec.preprocess is not None:
                value = resized(spec.preprocess, value)
            return value * getattr(self, f"scale_{index}") + getattr(self, f"shift_{index}")

    args, shapes = zip(*(
        (example, free) if spec is None else _sent_example(spec, example, free)
        for spec, example, free in zip(specs, program.args, program.dynamic_shapes["inputs"], strict=True)),
        strict=True)
    module = Normalising()
    module.training = False  # eval() would ask the inner module, too, and a program that was exported refuses
    return TorchProgram(module=module, args=args, dynamic_shapes={"inputs": shapes})


def _sent_example(spec: TensorSpec, example: Any, free: dict[int, Any]) -> tuple[Any, dict[int, Any]]:
    """What clients send of ``example``, the source's own input, and which of its dimensions are free."""
    import torch

    axes = order(spec)
    back = [axes.index(axis) for axis in range(len(axes))]
    if spec.preprocess is not None:
        example = torch.nn.functional.interpolate(example, size=_example_size(spec))
        free |= {axis: torch.export.Dim.DYNAMIC for axis in (2, 3) if _is_free(spec, axes[axis])}
    sent = (example.permute(back) * 64 + 128).clamp(0, 255).to(torch.uint8).contiguous()
    return sent, {axes[axis]: size for axis, size in free.items()}


def _is_free(spec: TensorSpec, place: int) -> bool:
    low, high = size_range(spec.shape[place])
    return low != high


def _example_size(spec: TensorSpec) -> list[int]:
    """Height and width that clients may send, no two alike where they are free: what is equal is traced as equal."""
    (low, high), (least, most) = (size_range(spec.shape[place]) for place in order(spec)[2:])
    height = low + (high - low) // 2
    width = least + (most - least) // 3
    return [height, width]
