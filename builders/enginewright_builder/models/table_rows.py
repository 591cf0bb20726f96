"""How large integers of a request may be: below the rows of the table that a PyTorch model looks them up in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class TableRows(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, ``rows`` gets the fewest rows of a table that each of ``inputs`` is looked up in as it is,
    by name. What a model makes of an input before it looks that up is not followed."""

    def __init__(self, inputs: Mapping[str, torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = {_place(tensor): name for name, tensor in inputs.items()}
        self.rows = dict[str, int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.embedding.default and (name := self._names.get(_place(args[1]))):
            self.rows[name] = min(len(args[0]), self.rows.get(name, len(args[0])))
        return func(*args, **(kwargs or {}))


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
