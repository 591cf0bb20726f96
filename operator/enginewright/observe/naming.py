"""An index of names that takes little memory: most values of a label are those of one object."""

from __future__ import annotations

from collections.abc import Collection, Hashable


class Names:
    """Which objects have a value, by scopes: a kind, a namespace and a label, say. A name that has its value to itself
    stands there as it is: a set takes 216 bytes, and a model has eight of them."""

    def __init__(self) -> None:
        self._scopes: dict[Hashable, dict[str, str | set[str]]] = {}

    def add(self, scope: Hashable, value: str, name: str) -> None:
        values = self._scopes.setdefault(scope, {})
        found = values.setdefault(value, name)
        if isinstance(found, set):
            found.add(name)
        elif found != name:
            values[value] = {found, name}

    def remove(self, scope: Hashable, value: str, name: str) -> None:
        values = self._scopes.get(scope, {})
        found = values.get(value)
        if isinstance(found, set):
            found.discard(name)
        if not found or found == name:
            del values[value]
            if not values:
                del self._scopes[scope]

    def get(self, scope: Hashable, value: str) -> Collection[str]:
        found = self._scopes.get(scope, {}).get(value, ())
        return (found,) if isinstance(found, str) else found
