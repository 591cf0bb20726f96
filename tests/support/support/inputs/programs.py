"""PyTorch modules as exported programs and TorchScript, with a batch, a frozen one, and none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enginewright_builder.contract import Interface, TensorSpec

Arrays = dict[str, NDArray[Any]]
FROZEN = 3
STRUCTURES = """
def forward(self, pair: Dict[str, Tensor], more: List[Tensor], state: Tuple[Tensor, Tensor]):
    total = pair["a"] - pair["b"]
    for one in more:
        if bool(one.sum() > 1e6):
            total = total * one
        else:
            total = total + one
    return {"total": [total], "kept": [state[0] + total, state[1]]}
"""
GAIN = Interface(inputs=(TensorSpec(name="gain", dtype="float32", value=(0.5,)),))


def free(folder: Path) -> Path:
    import torch

    return _exported(folder, _product(), (torch.rand(2, 16),), ({0: torch.export.Dim.DYNAMIC},))


def frozen(folder: Path) -> Path:
    import torch

    return _exported(folder, _product(), (torch.rand(FROZEN, 16),))


def with_state(folder: Path) -> Path:
    return _exported(folder, *_step())


def with_gain(folder: Path) -> Path:
    """A batch, and a scalar beside it."""
    import torch

    return _exported(folder, _gained(), (torch.rand(3, 16), torch.tensor(2.0)), ({0: torch.export.Dim.DYNAMIC}, None))


def structured(folder: Path) -> Path:
    """A dict and a list of tensors, and one by name."""
    import torch

    class Structured(torch.nn.Module):
        def forward(self, pair: Any, more: Any, *, bias: Any) -> Any:
            return pair["a"] * more[0] + bias

    batch = {0: torch.export.Dim.DYNAMIC}
    program = torch.export.export(
        Structured().eval(), ({"a": torch.rand(3, 4)}, [torch.rand(3, 4)]), {"bias": torch.rand(3, 4)},
        dynamic_shapes={"pair": {"a": batch}, "more": [batch], "bias": batch})
    torch.export.save(program, folder / "model.pt2")
    return folder / "model.pt2"


def scripted_with_gain(folder: Path) -> Path:
    """A batch, and a number of Python's beside it."""
    import torch

    torch.jit.script(_gained().eval()).save(str(folder / "model.pt"))
    return folder / "model.pt"


def scripted_structures(folder: Path) -> Path:
    """A dict, a list and a tuple of tensors in, and a dict of a tensor and a list out; a branch on values stays one."""
    return scripted(STRUCTURES, folder)


def scripted_cells(folder: Path) -> Path:
    """A loop over a sequence of any length, with a cell of each kind and without a bias."""
    import torch

    class Cells(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gated, self.bare = torch.nn.GRUCell(6, 8), torch.nn.GRUCell(6, 8, bias=False)
            self.plain, self.cut = torch.nn.RNNCell(8, 8), torch.nn.RNNCell(8, 8, nonlinearity="relu")

        def forward(self, steps):  # type: ignore[no-untyped-def]
            state = torch.zeros(steps.size(0), 8)
            for place in range(steps.size(1)):
                state = self.gated(steps[:, place], state) + self.bare(steps[:, place], state)
                state = self.plain(state, self.cut(state, state))
            return state

    torch.manual_seed(3)
    torch.jit.script(Cells().eval()).save(str(folder / "model.pt"))  # type: ignore[no-untyped-call]
    return folder / "model.pt"


def scripted(forward: str, folder: Path) -> Path:
    """A module of this code."""
    import torch

    class Module(torch.jit.ScriptModule):
        pass

    module = Module()
    module.define(forward)
    module.save(str(folder / "model.pt"))
    return folder / "model.pt"


def _gained() -> Any:
    import torch

    class Gained(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product = torch.nn.Linear(16, 8)

        def forward(self, x, gain: float):  # type: ignore[no-untyped-def]
            return self.product(x) * gain

    torch.manual_seed(3)
    return Gained()


def mean(folder: Path) -> Path:
    """One number of however many samples."""
    import torch

    class Mean(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.mean()

    return _exported(folder, Mean(), (torch.rand(3, 16),), ({0: torch.export.Dim.DYNAMIC},))


def traced(folder: Path) -> Path:
    import torch

    return _traced(folder, _product(), (torch.rand(FROZEN, 16),))


def traced_with_state(folder: Path) -> Path:
    return _traced(folder, *_step())


def answers(path: Path, sent: Arrays) -> list[NDArray[Any]]:
    """PyTorch's own, in calls of the batch that the source is frozen to. What is in an archive of TorchServe also lies
    beside it."""
    import torch

    if path.suffix == ".mar":
        (path,) = path.parent.glob("model.pt*")
    if path.suffix == ".pt2":
        program = torch.export.load(str(path))
        values = [node.meta["val"] for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
        sizes: list[list[Any]] = [list(value.shape) for value in values]
        module: Callable[..., Any] = program.module()
    else:
        module = torch.jit.load(str(path))  # type: ignore[no-untyped-call]
        sizes = [[1] * array.ndim for array in sent.values()]
    fronts = {size[0] if size and isinstance(size[0], int) else 0 for size in sizes}
    frozen_to = fronts.pop() if len(sizes) == 1 and len(fronts) == 1 else 0
    given = [array.reshape(()) if not size else array for array, size in zip(sent.values(), sizes, strict=True)]
    rows = len(given[0]) if given[0].ndim else 1
    if frozen_to and rows % frozen_to:
        given = [np.resize(array, (-(-rows // frozen_to) * frozen_to, *array.shape[1:])) for array in given]
    calls = [given] if not frozen_to else [[array[start:start + frozen_to] for array in given]
                                           for start in range(0, len(given[0]), frozen_to)]
    with torch.inference_mode():
        told = [module(*_structured(dict(zip(sent, map(torch.from_numpy, call), strict=True)))) for call in calls]
    parts = [[one] if isinstance(one, torch.Tensor) else _flat(one) for one in told]
    return [np.concatenate([np.atleast_1d(part[place].numpy()) for part in parts])[:rows if frozen_to else None]
            for place in range(len(parts[0]))]


def _structured(tensors: dict[str, Any]) -> list[Any]:
    """Arguments: ``pair.a`` and ``pair.b`` are a dict, ``state.0`` and ``state.1`` a tuple, and ``more.0`` a list."""
    taken: dict[str, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        argument, _, key = name.partition(".")
        taken.setdefault(argument, {})[key] = tensor
    kinds: dict[str, Callable[[Any], Any]] = {"state": tuple, "more": list}
    return [parts[""] if "" in parts else kinds[name](parts.values()) if name in kinds else parts
            for name, parts in taken.items()]


def _flat(answer: Any) -> list[Any]:
    items = answer.values() if isinstance(answer, dict) else answer
    return [one for item in items for one in (_flat(item) if isinstance(item, list) else [item])]


def _product() -> Any:
    import torch

    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU())


def _step() -> tuple[Any, tuple[Any, ...]]:
    """A cell whose state and whose gain the client sends."""
    import torch

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.taken, self.kept = torch.nn.Linear(16, 8), torch.nn.Linear(8, 8)

        def forward(self, x: Any, state: Any, gain: Any) -> Any:
            hidden = torch.tanh(self.taken(x) * gain + self.kept(state[0]))
            return hidden, torch.stack([hidden, state[1]])

    torch.manual_seed(2)
    return Step(), (torch.rand(1, 16), torch.rand(2, 1, 8), torch.tensor(2.0))


def _exported(folder: Path, module: Any, example: tuple[Any, ...], shapes: Any = None) -> Path:
    import torch

    torch.export.save(torch.export.export(module.eval(), example, dynamic_shapes=shapes), folder / "model.pt2")
    return folder / "model.pt2"


def _traced(folder: Path, module: Any, example: tuple[Any, ...]) -> Path:
    import torch

    torch.jit.trace(module.eval(), example).save(str(folder / "model.pt"))  # type: ignore[no-untyped-call]
    return folder / "model.pt"
