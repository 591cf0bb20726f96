"""The schema of an OptimisedModel, made once for each process."""

from __future__ import annotations

import functools
from typing import Any

from enginewright.core.spec.crd import crd


@functools.cache
def object_schema(*, old_names: bool = True) -> dict[str, Any]:
    """As :func:`crd` has it. All tests share it: whoever changes it takes a copy."""
    found: dict[str, Any] = crd(old_names=old_names)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found
