"""Reading the apiserver's JSON without trusting that optional fields are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from enginewright.core import labels

Raw = Mapping[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def section(raw: Raw, *path: str) -> Raw:
    """The mapping at ``path``, empty where it or a parent is absent."""
    for key in path:
        raw = raw.get(key) or {}
    return raw


def entries(raw: Raw, *path: str) -> Sequence[Raw]:
    """The list at ``path``, empty where it or a parent is absent."""
    return section(raw, *path[:-1]).get(path[-1]) or ()


def name_of(raw: Raw) -> str:
    return str(section(raw, "metadata").get("name") or "")


def uid_of(raw: Raw) -> str:
    return str(section(raw, "metadata").get("uid") or "")


def labels_of(raw: Raw) -> Mapping[str, str]:
    return section(raw, "metadata", "labels")


def annotations_of(raw: Raw) -> Mapping[str, str]:
    return section(raw, "metadata", "annotations")


def owner_model(raw: Raw) -> str:
    """Name of the OptimisedModel that owns the object, empty where none does."""
    owners = entries(raw, "metadata", "ownerReferences")
    return next((str(owner.get("name")) for owner in owners if owner.get("kind") == labels.KIND), "")


def is_deleting(raw: Raw) -> bool:
    return bool(section(raw, "metadata").get("deletionTimestamp"))


def created(raw: Raw) -> datetime:
    return moment(section(raw, "metadata").get("creationTimestamp")) or EPOCH


def moment(text: object) -> datetime | None:
    """``metav1.Time`` to a moment."""
    return datetime.fromisoformat(text) if isinstance(text, str) and text else None


def condition(raw: Raw, kind: str) -> Raw:
    """The status condition of that type, empty where absent."""
    return next((entry for entry in entries(raw, "status", "conditions") if entry.get("type") == kind), {})


def has_condition(raw: Raw, kind: str) -> bool:
    return condition(raw, kind).get("status") == "True"


def controller_of(raw: Raw) -> str:
    """UID of the object whose controller made this one, empty where none did."""
    owners = entries(raw, "metadata", "ownerReferences")
    return next((str(owner.get("uid") or "") for owner in owners if owner.get("controller")), "")


def controlled_by(raw: Raw, uid: str) -> bool:
    """Whether an owner reference names ``uid``."""
    return any(owner.get("uid") == uid for owner in entries(raw, "metadata", "ownerReferences"))
