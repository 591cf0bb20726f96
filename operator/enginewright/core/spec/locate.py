"""From a path in the raw spec to the type that stands there: its fields, and the remedy written on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from enginewright.core.spec.base import Remedy

Location = Sequence[str | int]
KEY = "[key]"  # what pydantic puts behind the key of a map that is wrong itself


def written_remedy(root: Any, path: Location) -> str:
    """The nearest :class:`Remedy` on the way down to ``path``."""
    kind = root
    found = ""
    for step in path:
        kind, text = _descend(kind, step)
        found = text or found
    return found


def key_remedy(root: Any, path: Location) -> str:
    """The :class:`Remedy` on the keys of the map at ``path``."""
    kind = root
    for step in path:
        kind, _ = _descend(kind, step)
    below = next((arg for arg in _flatten(kind) if get_origin(arg)), None)
    return _remedy_in(getattr(get_args(below)[0], "__metadata__", ())) if below is not None else ""


def model_at(root: Any, path: Location) -> type[BaseModel] | None:
    kind = root
    for step in path:
        kind, _ = _descend(kind, step)
    return _model_in(kind)


def _descend(kind: Any, step: str | int) -> tuple[Any, str]:
    """The type below ``kind`` at ``step``, and the remedy written on it."""
    model = _model_in(kind)
    if model is None:
        below = next((arg for arg in _flatten(kind) if get_origin(arg)), None)
        args = [arg for arg in get_args(below) if arg is not Ellipsis] if below is not None else []
        child: Any = args[-1] if args else Any
        return child, _remedy_in(getattr(child, "__metadata__", ()))
    info = fields_of(model).get(str(step))
    if info is None:
        return Any, ""
    return info.annotation, _remedy_in(info.metadata)


def fields_of(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """By the name that YAML has."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _remedy_in(metadata: Sequence[object]) -> str:
    return next((item.text for item in metadata if isinstance(item, Remedy)), "")


def _flatten(kind: Any) -> Iterator[Any]:
    """``kind`` without ``Annotated``, or the branches of a union."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _flatten(get_args(kind)[0])
    elif origin in (Union, UnionType):
        for branch in get_args(kind):
            yield from _flatten(branch)
    else:
        yield kind


def _model_in(kind: Any) -> type[BaseModel] | None:
    branches = (branch for branch in _flatten(kind) if isinstance(branch, type))
    return next((branch for branch in branches if issubclass(branch, BaseModel)), None)


def real_path(root: Any, location: Location) -> Iterator[str | int]:
    """Drops what pydantic puts in for a union's branch (``int``, ``constrained-str``, ``[key]``)."""
    kind = root
    for step in location:
        if _is_branch(kind, step):
            return
        kind, _ = _descend(kind, step)
        yield step


def _is_branch(kind: Any, step: str | int) -> bool:
    branches = list(_flatten(kind))
    scalars = all(branch in (int, str, float, type(None)) for branch in branches)
    # Right below a model it is a field of that name.
    key = step == KEY and _model_in(kind) is None
    return isinstance(step, str) and (key or (scalars and len(branches) > 1))
