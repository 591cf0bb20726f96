"""Whether weights are whole, read from their headers; ONNX graphs also with the checker."""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path
from typing import Any

from enginewright_builder.errors import UserError, brief
from enginewright_builder.foreign_json import parsed
from enginewright_builder.sources.external_data import MOST_GRAPH, external_file, reference, tensors
from enginewright_builder.sources.onnx_versions import check_versions

_FIELD = "spec.source.uri"
_REMEDY = "copy the file again and state its digest in spec.source.digest"
# The format's own limit (safetensors README, "100MB" header).
_SAFETENSORS_HEADER_LIMIT = 100_000_000
_MOST_DIMENSIONS = 64
_BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16,
         "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4}
# Compiled elsewhere, and opened by path.
_COMPILED = frozenset({"EPContext"})
# Custom domains that ONNX Runtime itself implements.
_KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft",
                            "com.microsoft.nchwc", "ai.onnx.training"})


def check_safetensors(path: Path) -> None:
    """The header parses, and the tensors it promises fill the rest of the file exactly. Raises ``SourceCorrupt``.

    Layout (safetensors README): 8 bytes little-endian header length, JSON header, data.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        if len(head) < 8:
            raise _corrupt(path, f"is {size} bytes long, too short for a header")
        (length,) = struct.unpack("<Q", head)
        if length > min(size - 8, _SAFETENSORS_HEADER_LIMIT):
            raise _corrupt(path, f"promises a header of {length} bytes, the file has {size}")
        try:
            header = parsed(file.read(length))
            ends = [_tensor_end(name, entry) for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _corrupt(path, f"has a header that cannot be read: {error}") from error
    promised = max(ends, default=0)
    if promised != size - 8 - length:
        raise _corrupt(path, f"promises {promised} bytes of tensors and has {size - 8 - length}")


def _tensor_end(name: str, entry: Any) -> int:
    (start, end), shape = entry["data_offsets"], entry["shape"]
    numbers = (start, end, *shape[:_MOST_DIMENSIONS + 1])
    if len(shape) > _MOST_DIMENSIONS or not all(type(one) is int and 0 <= one < 1 << 63 for one in numbers):
        raise ValueError(f"tensor {name[:100]!r} has an offset or a size that is not a number of bytes")
    if (bits := _BITS.get(entry["dtype"])) and (end - start) * 8 != math.prod(shape) * bits:
        raise ValueError(f"tensor {name[:100]!r} of shape {shape} does not fit its {end - start} bytes")
    return int(end)


def check_onnx(path: Path) -> None:
    """Raises ``SourceCorrupt`` for a file that does not parse or check, ``UnsupportedOperator`` for unknown
    operators."""
    import onnx  # 0.3 s to import: only where there is an ONNX to check

    if path.stat().st_size > MOST_GRAPH:
        raise _corrupt(path, "is longer than the 2 GiB that an ONNX graph can have")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # the parser raises classes of the protobuf implementation in use
        raise _corrupt(path, f"is not a readable ONNX model: {brief(error, 200)}") from error
    if not model.graph.node and not model.graph.output:
        raise _corrupt(path, "is not an ONNX model: it has no nodes and no outputs")
    _check_operators(path, model)
    _check_external_data(path, model)
    check_versions(path, model)
    try:
        # By path, so that external data and models above 2 GiB are covered.
        onnx.checker.check_model(str(path))
    except Exception as error:
        raise _corrupt(path, f"fails the ONNX checker: {brief(error, 200)}") from error


def _check_operators(path: Path, model: Any) -> None:
    import onnx

    versions = {entry.domain or "": entry.version for entry in model.opset_import}
    functions = {(function.domain, function.name) for function in model.functions}
    for node in [*_all_nodes(model.graph), *(inner for function in model.functions for inner in _all_nodes(function))]:
        if (node.domain, node.op_type) in functions:
            continue
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain not in _KNOWN_DOMAINS or node.op_type in _COMPILED:
            raise _unsupported(path, node.op_type, node.domain)
        if domain in ("", "ai.onnx.ml") and not onnx.defs.has(node.op_type, versions.get(domain, 1), domain):
            raise _unsupported(path, node.op_type, node.domain or "ai.onnx")


def _all_nodes(graph: Any) -> list[Any]:
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                nodes.extend(_all_nodes(inner))
    return nodes


def _check_external_data(path: Path, model: Any) -> None:
    """Weights beside the model are there, whole, and inside its folder."""
    for tensor in tensors(model):
        entries = reference(tensor)
        if not (location := entries.get("location")):
            continue
        file = external_file(path, location).path
        stated = [entries.get(key) or "0" for key in ("offset", "length")]
        if not all(re.fullmatch(r"[0-9]{1,18}", number) for number in stated):
            raise _corrupt(path, f"takes weights from {location[:200]!r} by an offset or length that is no number")
        if file.stat().st_size < (needed := sum(map(int, stated))):
            raise _corrupt(path, f"needs {needed} bytes of weights in {location[:200]!r}, which is shorter")


def _unsupported(path: Path, operator: str, domain: str) -> UserError:
    remedy = "export the model with standard ONNX operators"
    if domain not in _KNOWN_DOMAINS:
        remedy += (f": neither builder nor server loads libraries of operators. The file itself may define {operator} "
                   "as an ONNX function of standard operators")
    return UserError("UnsupportedOperator", f"{path.name} uses operator {operator!r} of domain {domain!r}, which is "
                     "unknown here", field=_FIELD, value=f"{domain}::{operator}", remedy=remedy)


def _corrupt(path: Path, what: str) -> UserError:
    return UserError("SourceCorrupt", f"{path.name} {what}", field=_FIELD, value=path, remedy=_REMEDY)
