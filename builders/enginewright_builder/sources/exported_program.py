"""Opening a ``.pt2`` without running what is in it.

``torch.export.load`` is not safe by itself (torch 2.15, ``torch/export/pt2_archive/_package.py`` and
``torch/_export/serde/serialize.py``). It opens every member below ``models/``; unpickles what a configuration calls an
opaque object; loads compiled libraries; evaluates shape expressions; looks operators up by name, in any module that
PyTorch has imported; imports what a ``defaultdict`` or an enumeration in an input's structure names; and puts the
names of nodes and weights into Python code that it compiles and runs.

So the archive is looked through first. What ``torch.export.save`` writes for plain PyTorch operators is let through,
and nothing else: members, names, operators, structures and expressions by their form. Pickled tensors are left to
PyTorch's restricted unpickler (``TORCH_FORCE_WEIGHTS_ONLY_LOAD``, set where the archive is loaded).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from enginewright_builder.foreign_json import parsed
from enginewright_builder.sources.shape_expression import SYMBOL, is_shape_expression
from enginewright_builder.sources.torch_archive import TorchArchive, opened

# torch.export.load gives the program of this name, whatever else there is.
_GRAPHS = ("models/model.json", "serialized_exported_program.json")
_CONFIGS = re.compile(r"data/(?:weights|constants)/model_(?:weights|constants)_config\.json")
_MEMBER = re.compile(
    r"archive_format|archive_version|byteorder|version|\.format_version|\.storage_alignment"
    r"|\.data/(?:version|serialization_id)|models/model\.json|data/sample_inputs/model\.pt"
    r"|data/(?:weights|constants)/(?:(?:weight|tensor)_\d{1,9}|model_(?:weights|constants)_config\.json|model\.pt)"
    r"|extra(?:_files)?/[^\0]+"
    # PyTorch 2.7 and earlier
    r"|serialized_exported_program\.json|serialized_(?:state_dict|constants|example_inputs)\.(?:pt|json)", re.ASCII)
_PAYLOAD = re.compile(r"(?:weight|tensor)_\d{1,9}", re.ASCII)

_NAME = re.compile(r"(?:[A-Za-z_]\w*)?", re.ASCII)
# Paths of modules and weights, devices, versions: no quotes, brackets or ends of lines.
_PLAIN = re.compile(r"[\w./:\-+<>= ]*", re.ASCII)
# The tensors' own operators, without those that read and write files, and what works on sizes.
_TARGET = re.compile(
    r"torch\.ops\.(?:aten|prims|quantized_decomposed|torchvision)"
    r"\.(?!from_file\b|save\b|__)\w+(?:\.(?!__)\w+)?"
    r"|torch\.ops\.aten\.__(?:and|or|xor|lshift|rshift|iand|ior|ixor|ilshift|irshift)__\.\w+"
    r"|torch\.ops\.higher_order\.(?:cond|while_loop|scan|map_impl|associative_scan|flex_attention|invoke_subgraph"
    r"|wrap_with_set_grad_enabled|wrap_with_autocast|out_dtype)"
    r"|_operator\.(?:eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_|lshift|rshift|getitem)"
    r"|math\.(?:trunc|ceil|floor)"
    r"|torch\.sym_(?:not|int|float|ite|max|min|sqrt|sum)|torch\._sym_\w+", re.ASCII)
# Structures of inputs and outputs: a leaf, and these. Others import what they name.
_STRUCTURES = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")


def check_exported_program(path: Path) -> None:
    """Raises :class:`UserError` ``PickleRefused`` for content that could run, ``SourceCorrupt`` for a damaged
    archive."""
    with opened(path) as archive:
        check_program(archive)


def check_program(archive: TorchArchive) -> None:
    """The same of an archive that is open. Raises as :func:`check_exported_program`."""
    archive.check_names()
    for name in archive.names:
        if not _MEMBER.fullmatch(name):
            raise archive.refuse(f"member {name[:100]!r} is none that torch.export.save writes for tensors")
    graphs = [name for name in archive.names if name in _GRAPHS]
    if not graphs:
        raise archive.corrupt("it holds no graph")
    for name in graphs:
        _check_graph(archive, archive.json(name))
    for name in filter(_CONFIGS.fullmatch, archive.names):
        _check_config(archive, name)


def _check_graph(archive: TorchArchive, graph: Any) -> None:
    if not isinstance(graph, dict):
        raise archive.corrupt("its graph is no object")
    ranges = graph.get("range_constraints", {})
    if not isinstance(ranges, dict) or not all(map(SYMBOL.fullmatch, ranges)):
        raise archive.refuse("it gives ranges to what is no symbol")
    for key, text in _texts(graph):
        allows, what = _RULES.get(key, _OTHER)
        if not allows(text):
            raise archive.refuse(f"{what} {text[:60]!r}")


def _texts(graph: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every text with the key that it or its list stands at, and every key as a text of its own, at none."""
    stack: list[tuple[str, Any]] = [("", graph)]
    while stack:
        key, item = stack.pop()
        if isinstance(item, str):
            yield key, item
        elif isinstance(item, list):
            stack.extend((key, one) for one in item)
        elif isinstance(item, dict):
            yield from (("", one) for one in item)
            stack.extend(item.items())


def _is_structure(text: str, keys: Callable[[str], object]) -> bool:
    """``[1, {"type": …, "context": …, "children_spec": […]}]``, in JSON, in which contexts are JSON again."""
    try:
        version, top = parsed(text)
        stack = [top]
        while stack:
            node = stack.pop()
            if node["type"] not in _STRUCTURES:
                return False
            found = parsed(node["context"]) if node["context"] is not None else None
            if not all(isinstance(one, int) or (isinstance(one, str) and keys(one)) for one in found or ()):
                return False
            stack.extend(node["children_spec"])
    except (ValueError, TypeError, KeyError):
        return False
    return bool(version == 1)


def _check_config(archive: TorchArchive, name: str) -> None:
    """Which member a weight is in, and its size. An empty member would be made a tensor of zeros, of any size."""
    config = archive.json(name)
    try:
        for weight in config["config"].values():
            member, meta = weight["path_name"], weight["tensor_meta"]
            if not _PAYLOAD.fullmatch(member):
                raise archive.refuse(f"{name} names {member[:60]!r} as a tensor")
            there = f"{name.rpartition('/')[0]}/{member}"
            if there not in archive.names:
                raise archive.corrupt(f"{there} is missing")
            if not weight["use_pickle"] and not archive.size(there) and math.prod(
                    size["as_int"] for size in meta["sizes"]):
                raise archive.corrupt(f"{there} is empty, and should be a tensor")
    except (TypeError, KeyError, AttributeError) as error:
        raise archive.corrupt(f"{name} cannot be read: {error!r}") from error


_IDENTIFIER = (_NAME.fullmatch, "the name")
_OPERATOR = (_TARGET.fullmatch, "a call to")
_FREE = (lambda text: True, "the text")
_OTHER = (_PLAIN.fullmatch, "the text")
# How the texts at a key have to look. What is free, PyTorch keeps as text, or writes as one into its code.
_RULES: Mapping[str, tuple[Callable[[str], object], str]] = {
    "expr_str": (is_shape_expression, "the shape expression"),
    "target": _OPERATOR, "as_operator": _OPERATOR,
    "name": _IDENTIFIER, "as_name": _IDENTIFIER, "user_input_name": _IDENTIFIER, "forward_arg_names": _IDENTIFIER,
    "field_names": _IDENTIFIER,
    # Keys of inputs become names of arguments.
    "in_spec": (lambda text: _is_structure(text, _NAME.fullmatch), "the structure"),
    "out_spec": (lambda text: _is_structure(text, lambda key: True), "the structure"),
    "as_string": _FREE, "as_strings": _FREE,
    # Notes on where nodes come from; and guards, which are code: the loader drops them before anything runs.
    **dict.fromkeys(("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "custom", "from_node"), _FREE),
    "guards_code": _FREE,
}
