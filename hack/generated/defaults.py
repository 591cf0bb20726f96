"""charts/enginewright/files/defaults.yaml: what each value is where the user's values do not have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]


def by_path(values: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Default by path (``images.server.tag``). A map whose keys are the user's own is one value: what lacks there may
    be what the user took away. Raises ``ValueError`` for a value that the schema does not have."""
    return dict(_walk("", values, schema, schema))


def _walk(prefix: str, values: Mapping[str, Any], schema: Schema, root: Schema) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        path = f"{prefix}{name}"
        if name not in schema["properties"]:
            raise ValueError(f"values.yaml has {path}, which values.schema.json does not")
        child = _resolved(schema["properties"][name], root)
        if _is_taken_whole(child, root):
            yield path, value
        else:
            yield from _walk(f"{path}.", value, child, root)


def _is_taken_whole(schema: Schema, root: Schema) -> bool:
    """All but a structure; of those one that only holds maps of the user's own keys, as requests and limits do."""
    children = [_resolved(child, root) for child in schema.get("properties", {}).values()]
    return all(child.get("type") == "object" and "properties" not in child for child in children)


def _resolved(schema: Schema, root: Schema) -> Schema:
    """Follows a reference to the schema's own definitions."""
    if "$ref" not in schema:
        return schema
    found: Schema = root["definitions"][schema["$ref"].removeprefix("#/definitions/")]
    return found
