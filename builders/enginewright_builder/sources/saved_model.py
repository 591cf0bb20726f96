"""TensorFlow's SavedModel, looked through before TensorFlow loads it.

A SavedModel is a program: a library of functions, of which loading calls some and a request others, and TensorFlow has
operators that read and write files, open connections and call Python. So ``saved_model.pb`` is read here, without
TensorFlow, and its functions may have operators on tensors alone.

Only the fields that matter are described below; numbers are those of TensorFlow's own ``.proto`` files
(``tensorflow/core/protobuf``: saved_model, meta_graph, saved_object_graph; ``tensorflow/core/framework``: graph,
function, node_def, attr_value), which do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.sources.tensorflow_ops import PLAIN, SAVERS

GRAPH = "saved_model.pb"
WEIGHTS = "variables"
SERVING = "serving_default"
# Forms of the same file that TensorFlow would read in its place.
_OTHER_FORMS = ("saved_model.cpb", "saved_model.pbtxt")
# What TensorFlow itself adds: it answers nothing.
_INIT = "__saved_model_init_op"
# Grappler puts functions in each other's place by it.
_STANDS_IN = "api_implements"

_FIELD = "spec.source.uri"
# DataType of tensorflow/core/framework/types.proto.
_TYPES = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 9: "int64", 10: "bool",
          17: "uint16", 19: "float16", 22: "uint32", 23: "uint64"}
# Protobuf's own limit.
_MOST_BYTES = (1 << 31) - 1
_EXPORT = ("export it again from Keras with model.export(FOLDER), or with "
           "tf.saved_model.save(module, FOLDER, signatures=…)")
# A message's fields: number, name, and the message that it is, ``str`` or ``int``. All are read as lists, so that what
# is there twice is seen twice.
_MESSAGES: dict[str, list[tuple[int, str, str]]] = {
    "SavedModel": [(2, "graphs", "MetaGraph")],
    "MetaGraph": [(2, "graph", "Graph"), (5, "signatures", "Signature"), (7, "objects", "Objects")],
    "Signature": [(1, "name", "str"), (2, "value", "Sides")],
    "Sides": [(1, "inputs", "Tensor"), (2, "outputs", "Tensor")],
    "Tensor": [(1, "name", "str"), (2, "info", "Info")],
    "Info": [(2, "kind", "int"), (3, "shape", "Shape")],
    "Shape": [(2, "sizes", "Size"), (3, "unknown", "int")],
    "Size": [(1, "size", "int")],
    "Graph": [(2, "library", "Library")],
    "Library": [(1, "functions", "Function")],
    "Function": [(1, "signature", "Named"), (3, "nodes", "Node"), (5, "attributes", "Attribute")],
    "Node": [(2, "op", "str"), (5, "attributes", "Attribute")],
    "Attribute": [(1, "name", "str"), (2, "value", "Value")],
    "Value": [(1, "list", "Values"), (2, "text", "str"), (10, "function", "Call")],
    "Values": [(2, "text", "str"), (9, "function", "Call")],
    "Call": [(1, "name", "str"), (2, "attributes", "Attribute")],
    "Named": [(1, "name", "str")],
    "Objects": [(1, "nodes", "Object"), (2, "functions", "Named")],
    "Object": [(6, "function", "Traces"), (8, "bare", "Named"), (10, "resource", "Nothing")],
    "Traces": [(1, "functions", "str")],
    "Nothing": [],
}


def check_saved_model(folder: Path) -> None:
    """Raises :class:`UserError` ``SourceCorrupt`` for what is no whole SavedModel, ``UnsupportedModel`` for one that
    answers no requests or is of TensorFlow 1, ``UnsupportedOperator`` for operators that do more than compute."""
    for name in _OTHER_FORMS:
        if (folder / name).exists():
            raise _refuse("UnsupportedModel", f"{folder.name} holds {name}, which TensorFlow would read in place of "
                          f"{GRAPH}", name, _EXPORT)
    model = _read(folder / GRAPH)
    if len(model.graphs) != 1 or not model.graphs[0].objects:
        raise _refuse("UnsupportedModel", f"{folder.name} is a SavedModel of TensorFlow 1: it has several graphs, or "
                      "one without TensorFlow 2's objects", len(model.graphs),
                      f"load it in TensorFlow 2, and {_EXPORT}")
    if not (folder / WEIGHTS / "variables.index").is_file():
        raise _refuse("SourceCorrupt", f"{folder.name} has no {WEIGHTS}/variables.index", folder,
                      "copy the whole folder again and state its digest in spec.source.digest")
    graph = model.graphs[0]
    serving_signature(folder, _names(graph.signatures))
    _check_functions(folder, graph)


def serving_signature(folder: Path, names: list[str]) -> str:
    """The function that answers requests: ``serving_default``, or the only one there is. Raises :class:`UserError`
    ``UnsupportedModel``."""
    found = sorted(name for name in names if name != _INIT)
    if SERVING in found:
        return SERVING
    if len(found) == 1:
        return found[0]
    others = f"it has {', '.join(found[:8])}" if found else "it has no signature at all"
    raise _refuse("UnsupportedModel", f"{folder.name} has no serving signature {SERVING!r}: {others}",
                  ", ".join(found[:8]) or "none", _EXPORT)


def signatures(folder: Path) -> list[str]:
    """Raises :class:`UserError` ``SourceCorrupt``."""
    return _names(_read(folder / GRAPH).graphs[0].signatures)


def signature_interface(folder: Path) -> Interface:
    """What requests hold and get, as the serving signature says; no outputs where it does not say their shapes. Raises
    :class:`UserError` ``InterfaceInvalid`` for tensors that are not converted."""
    found = _read(folder / GRAPH).graphs[0].signatures
    serving = serving_signature(folder, _names(found))
    sides = [side for one in found if serving in map(_text, one.name) for side in one.value]
    inputs, outputs = ([one for side in sides for one in getattr(side, kind)] for kind in ("inputs", "outputs"))
    return Interface(inputs=_specs(inputs), outputs=_specs(outputs) if all(map(_has_shape, outputs)) else ())


def _specs(tensors: list[Any]) -> tuple[TensorSpec, ...]:
    return tuple(sorted(map(_spec, tensors), key=lambda spec: spec.name))


def _has_shape(tensor: Any) -> bool:
    shapes = [shape for info in tensor.info for shape in info.shape]
    return bool(shapes) and not any(any(shape.unknown) for shape in shapes)


def _spec(tensor: Any) -> TensorSpec:
    name = "".join(map(_text, tensor.name))
    kinds = [kind for info in tensor.info for kind in info.kind]
    shapes = [shape for info in tensor.info for shape in info.shape]
    dtype = _TYPES.get(kinds[-1] if kinds else 0, "")
    if not dtype:
        raise _refuse("InterfaceInvalid", f"{name!r} is of a type that is not converted", name,
                      f"export the model with one of {', '.join(_TYPES.values())}")
    if not _has_shape(tensor):
        raise _refuse("InterfaceInvalid", f"{name!r} has no shape, not even a number of dimensions", name,
                      "export it with tf.TensorSpec(shape, dtype) for every input; sizes may be None")
    sizes = [size.size[-1] if size.size else 0 for shape in shapes for size in shape.sizes]
    return TensorSpec(name=name, dtype=dtype, shape=tuple(size if size >= 0 else f"{name}_{axis}"
                                                          for axis, size in enumerate(sizes)))


def _check_functions(folder: Path, graph: Any) -> None:
    """Every function of the library: which of them is called, and when, is up to TensorFlow. Those that nothing names
    may save and restore."""
    functions = [function for one in graph.graph for library in one.library for function in library.functions]
    named = {name for function in functions for name in _named_in(function)}
    named |= {name for objects in graph.objects for name in _roots(objects)}
    for function in functions:
        own = _names(function.signature)
        reachable = bool(named.intersection(own)) or _STANDS_IN in _names(function.attributes)
        allowed = PLAIN if reachable else PLAIN | SAVERS
        if strange := sorted({_text(op) for node in function.nodes for op in node.op} - allowed):
            raise _refuse("UnsupportedOperator", f"function {', '.join(own)[:100]!r} of {folder.name} has operators "
                          f"that do more than compute with numbers: {', '.join(strange[:8])}", strange[0],
                          "leave files, tables, texts, printing and training out of what is exported: Keras's "
                          "model.export(FOLDER) writes the forward pass alone")
    if any(node.resource for objects in graph.objects for node in objects.nodes):
        raise _refuse("UnsupportedModel", f"{folder.name} has a resource beside its weights, such as a table of words",
                      "resource", "look words up before the model, and export what takes numbers")


def _named_in(function: Any) -> Iterator[str]:
    """All that may be the name of another function."""
    stack = [*function.attributes, *(attribute for node in function.nodes for attribute in node.attributes)]
    while stack:
        for value in stack.pop().value:
            for part in (value, *value.list):
                yield from map(_text, part.text)
                for call in part.function:
                    yield from map(_text, call.name)
                    stack.extend(call.attributes)


def _roots(objects: Any) -> Iterator[str]:
    yield from _names(objects.functions)
    for node in objects.nodes:
        yield from _names(node.bare)
        for traces in node.function:
            yield from map(_text, traces.functions)


def _names(messages: Any) -> list[str]:
    return [_text(name) for message in messages for name in message.name]


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def _read(path: Path) -> Any:
    from google.protobuf.message import DecodeError

    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise _refuse("SourceCorrupt", f"{path.name} is longer than the 2 GiB that it can have", path,
                      "copy the folder again and state its digest in spec.source.digest")
    model = _messages()["SavedModel"]()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise _unreadable(path, str(error)) from error
    if not model.graphs:
        raise _unreadable(path, "it holds no graph")
    return model


def _unreadable(path: Path, what: str) -> UserError:
    return _refuse("SourceCorrupt", f"{path.name} is no readable SavedModel: {what[:200]}", path,
                   "copy the folder again and state its digest in spec.source.digest")


def _refuse(reason: str, message: str, value: object, remedy: str) -> UserError:
    return UserError(reason, message, field=_FIELD, value=value, remedy=remedy)


@cache
def _messages() -> dict[str, Any]:
    """Classes of the messages, in a pool of their own: TensorFlow's own descriptors may be in the process as well."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_kinds = descriptor_pb2.FieldDescriptorProto
    kinds = {"str": field_kinds.TYPE_BYTES, "int": field_kinds.TYPE_INT64}
    file = descriptor_pb2.FileDescriptorProto(name="saved_model.proto", package="seen", syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind in fields:
            added = message.field.add(number=number, name=field, label=field_kinds.LABEL_REPEATED)
            if kind in kinds:
                added.type = kinds[kind]
            else:
                added.type, added.type_name = field_kinds.TYPE_MESSAGE, f".seen.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"seen.{name}")) for name in _MESSAGES}
