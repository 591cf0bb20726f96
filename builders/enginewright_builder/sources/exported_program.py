"""Opening a ``.pt2`` without running what is in it.

``torch.export.load`` is not safe by itself (torch 2.15, ``torch/export/pt2_archive/_package.py`` and
``torch/_export/serde/serialize.py``): opaque constants go through ``pickle.loads``, shape expressions through
``sympy.sympify`` (which evaluates), guards through ``exec``, and compiled libraries are loaded. So the archive is
looked through first and refused if it has any of these; pickled tensors are left to PyTorch's restricted unpickler
(``TORCH_FORCE_WEIGHTS_ONLY_LOAD``, set where the archive is loaded).
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from enginewright_builder.errors import UserError

_FIELD = "spec.source.uri"
# Members that hold pickles of arbitrary classes or machine code.
_REFUSED_MEMBER = re.compile(r"(^|/)(custom_obj_|opaque_obj_)|(^|/)data/aotinductor/|\.(so|cubin|o|dylib|dll)$")
_GRAPH_MEMBER = re.compile(r"(^|/)models/[^/]+\.json$|(^|/)serialized_exported_program\.json$")
# What shape expressions consist of, in SymPy's own notation: symbols, numbers, operators, and these functions.
_EXPRESSION = re.compile(r"[\w\s+\-*/%(),<>=&|~]*")
_SYMBOL = re.compile(r"Symbol\('\w+'(?:, ?\w+=(?:True|False))*\)")
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_FUNCTIONS = frozenset({
    "Add", "Mul", "Pow", "Mod", "Max", "Min", "Abs", "And", "Or", "Not", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality",
    "Unequality", "GreaterThan", "StrictGreaterThan", "LessThan", "StrictLessThan", "Integer", "Rational", "Symbol",
    "floor", "ceiling", "sqrt", "FloorDiv", "CleanDiv", "CeilDiv", "PythonMod", "ModularIndexing", "Where",
    "PowByNatural", "FloatPow", "FloatTrueDiv", "IntTrueDiv", "FloorToInt", "CeilToInt", "RoundToInt", "RoundDecimal",
    "TruncToInt", "TruncToFloat", "ToFloat", "Identity", "LShift", "RShift", "OpaqueUnaryFn_sqrt",
})
_TARGET = re.compile(r"(torch\.ops\.[\w.]+|_operator\.\w+|operator\.\w+|math\.\w+|torch\.sym_\w+|"
                     r"torch\._higher_order_ops[\w.]*|#\w+:[\w.:]+)")


def check_exported_program(path: Path) -> None:
    """Raises :class:`UserError` ``PickleRefused`` for content that would run, ``SourceCorrupt`` for a damaged
    archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise _corrupt(path, f"member {damaged} fails its checksum")
            names = archive.namelist()
            _check_members(path, names)
            graphs = [name for name in names if _GRAPH_MEMBER.search(name)]
            if not graphs:
                raise _corrupt(path, "it holds no graph")
            for name in graphs:
                _check_graph(path, json.loads(archive.read(name)))
    except (zipfile.BadZipFile, ValueError, OSError, EOFError) as error:
        raise _corrupt(path, str(error)) from error


def _check_members(path: Path, names: list[str]) -> None:
    if len(set(names)) != len(names):
        # Two readers could see two different files.
        raise _corrupt(path, "a member appears twice")
    for name in names:
        if _REFUSED_MEMBER.search(name):
            raise _refuse(path, f"member {name}")


def _check_graph(path: Path, graph: Any) -> None:
    for key, value in _walk(graph):
        if key == "expr_str" and isinstance(value, str) and not _is_plain_expression(value):
            raise _refuse(path, f"the shape expression {value[:60]!r}")
        if key == "target" and isinstance(value, str) and not _TARGET.fullmatch(value):
            raise _refuse(path, f"a call to {value[:60]!r}")


def _is_plain_expression(text: str) -> bool:
    text = _SYMBOL.sub("s", text)
    return (bool(_EXPRESSION.fullmatch(text)) and "__" not in text
            and all(name in _FUNCTIONS for name in _CALL.findall(text)))


def _walk(value: Any) -> Iterator[tuple[str, Any]]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield from item.items()
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _refuse(path: Path, what: str) -> UserError:
    return UserError("PickleRefused", f"{path.name} would run code when opened: {what}", field=_FIELD, value=path,
                     remedy="export the model from plain PyTorch operators, without custom objects, or give ONNX")


def _corrupt(path: Path, what: str) -> UserError:
    return UserError("SourceCorrupt", f"{path.name} is no whole exported program: {what}", field=_FIELD, value=path,
                     remedy="copy the file again and state its digest in spec.source.digest")
