"""What PyTorch's exporter knows of operators, made once for a process: else it makes all of it for each export, of
which tests have hundreds."""

from __future__ import annotations

import functools
import sys
from typing import Any

MODULE = "torch.onnx._internal.exporter._registration"


def remember_operators() -> None:
    """Nothing happens before the first export, which imports the exporter, and where it is done already."""
    module: Any = sys.modules.get(MODULE)
    if module is None or hasattr(module, "remembered"):
        return
    registry = module.ONNXRegistry
    module.remembered = functools.cache(registry.from_torchlib)

    def copied(**opset: int) -> Any:
        """What an export adds for itself is not in another's."""
        made, found = module.remembered(**opset), registry()
        found._opset_version = made.opset_version
        found.functions = {target: list(known) for target, known in made.functions.items()}
        return found

    registry.from_torchlib = staticmethod(copied)
