"""Files that an ONNX graph takes tensors from. No tensor is read: only the graph is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginewright_builder.errors import UserError
from enginewright_builder.sources.own_names import escapes_folder

_REMEDY = ("put all files of the model into one folder and name that; a file that is not on a volume is "
           "fetched alone")
# Protobuf's own limit.
MOST_GRAPH = 2 << 30
# What other formats begin with: a ZIP archive (PyTorch's own are) and pickles of protocol 2 and later.
_NO_GRAPH = (b"PK\x03\x04", *(bytes([0x80, protocol]) for protocol in range(2, 6)))


@dataclass(frozen=True, kw_only=True)
class ExternalFile:
    """``location`` is the name that the graph gives it, ``path`` where it lies, with links followed."""

    location: str
    path: Path


def external_files(graph: Path, field: str = "spec.source.uri") -> list[ExternalFile]:
    """Each once, in the order of the names' UTF-8 bytes; none for what is no ONNX graph.

    Raises :class:`UserError` ``SourceCorrupt`` where one is missing, or lies outside the graph's folder or in what is
    no part of it.
    """
    with graph.open("rb") as file:
        if graph.stat().st_size > MOST_GRAPH or file.read(4).startswith(_NO_GRAPH):
            return []
    import onnx  # 0.3 s to import: only where there may be an ONNX to look at

    try:
        # As check_onnx does: what it cannot read is refused there, after this.
        model = onnx.load(str(graph), load_external_data=False)
    except Exception:  # the parser raises classes of the protobuf implementation in use
        return []
    locations = {reference(tensor).get("location", "") for tensor in tensors(model)}
    return [external_file(graph, location, field) for location in sorted(locations - {""}, key=str.encode)]


def reference(tensor: Any) -> dict[str, str]:
    """Where a tensor lies. What is no text, protobuf gives as bytes: no file has the name that is made of them."""
    return {_text(entry.key): _text(entry.value) for entry in tensor.external_data}


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="backslashreplace")


def tensors(message: Any) -> Iterator[Any]:
    """All ``TensorProto`` in ``message``: initializers, sparse ones, and those in attributes, inner graphs and
    functions."""
    for descriptor, value in message.ListFields():
        kind = descriptor.message_type
        if kind is None:
            continue
        for one in [value] if hasattr(value, "ListFields") else value:
            if kind.name == "TensorProto":
                yield one
            else:
                yield from tensors(one)


def external_file(graph: Path, location: str, field: str = "spec.source.uri") -> ExternalFile:
    """Raises as :func:`external_files`."""
    folder = graph.parent.resolve()
    escapes = escapes_folder(location)
    path = folder if escapes else (folder / location).resolve()
    if escapes or not path.is_relative_to(folder):
        raise UserError("SourceCorrupt", f"{graph.name} takes weights from {location[:200]!r}, outside its folder "
                        "or in what is not a part of it", field=field, value=graph, remedy=_REMEDY)
    if not path.is_file():
        raise UserError("SourceCorrupt", f"{graph.name} takes weights from {location!r}, which is missing",
                        field=field, value=graph, remedy=_REMEDY)
    return ExternalFile(location=location, path=path)
