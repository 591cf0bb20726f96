"""What TensorRT's parser and builder say, as errors that name the node and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from enginewright_builder.errors import UserError

_FIELD = "spec.engine.precision"
_LONGEST = 300
# Of what the parser says of a node (onnx-tensorrt 10.6); the reason stands below it.
_HEADING = "Invalid Node - "
_PYTHON_API = re.compile(r"^\[[^\]]*\]\s*|^(IBuilder|IRuntime)::\w+: ")


@dataclass(frozen=True, kw_only=True)
class Complaint:
    """One error of the ONNX parser; ``code`` is the name of its ``ErrorCode``."""

    code: str
    text: str
    node: str = ""
    operator: str = ""


def parse_failed(complaints: Sequence[Complaint], precision: str, version: str) -> UserError:
    """Names the first node that TensorRT cannot take. Unsupported ones come before what follows from them."""
    if not complaints:
        return candidate_failed(precision, f"TensorRT {version} cannot read the graph and does not say why",
                                "leave spec.engine.backend at auto")
    first = min(complaints, key=lambda one: not one.code.startswith("UNSUPPORTED"))
    where = f" (node {first.node!r})" if first.node else ""
    why = _first_line(first.text)
    if first.code.startswith("UNSUPPORTED"):
        others = {one.operator for one in complaints if one.code.startswith("UNSUPPORTED")} - {first.operator, ""}
        more = f", nor {', '.join(sorted(others))}" if others else ""
        return candidate_failed(
            precision, f"TensorRT {version} does not support {first.operator or 'an operator'}{where}{more}: {why}; "
            "ONNX Runtime and PyTorch compete without it",
            "leave spec.engine.backend at auto, or export the model without this operator")
    return candidate_failed(precision, f"TensorRT {version} cannot read {first.operator or 'the graph'}{where}: {why}",
                            "leave spec.engine.backend at auto, or export the model another way")


def build_failed(errors: Sequence[str], precision: str, version: str) -> UserError:
    why = _first_line(errors[0]) if errors else "it does not say why"
    return candidate_failed(precision, f"TensorRT {version} cannot build the engine: {why}",
                            "leave spec.engine.backend and precision at auto")


def memory_exhausted(precision: str, smallest: int, memory: int) -> UserError:
    return candidate_failed(
        precision, f"the GPU's memory ({memory / 2**30:.1f} GiB) is too small to build the engine, even with "
        f"{smallest / 2**20:.0f} MiB of workspace",
        "lower spec.engine.maxBatchSize, or choose a larger spec.placement.mig.profile")


def out_of_memory(errors: Sequence[str]) -> bool:
    text = " ".join(errors).lower().replace(" ", "")
    return any(mark in text for mark in ("outofmemory", "insufficientmemory", "insufficientworkspace", "cudamalloc"))


def candidate_failed(precision: str, message: str, remedy: str) -> UserError:
    return UserError("CandidateFailed", message, field=_FIELD, value=precision, remedy=remedy)


def _first_line(text: str) -> str:
    """The first that says more than the name of the node."""
    lines = [part.strip() for part in text.splitlines() if part.strip()]
    line = next((part for part in lines if not part.startswith(_HEADING)), lines[0] if lines else "no reason given")
    return _PYTHON_API.sub("", line)[:_LONGEST]
