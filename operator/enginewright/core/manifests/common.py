"""Parts that several manifests share: ownership, metadata, the restricted security context, volumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from enginewright.core.observed import ObjectView

JSON = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The ``OptimisedModel`` that owns a child."""

    name: str
    namespace: str
    uid: str

    @classmethod
    def of(cls, view: ObjectView) -> Self:
        return cls(name=view.name, namespace=view.namespace, uid=view.uid)
