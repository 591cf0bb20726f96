"""The store of objects that name none, as ``config.defaultStore`` of the chart says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core.config import DefaultStore


def with_store(spec: Mapping[str, Any], default: DefaultStore) -> Mapping[str, Any]:
    """``spec``, raw and of any shape, with ``default`` where it names no store. Credentials of its own stay, and those
    of ``default`` are then left out."""
    given = spec.get("store")
    if not default.uri or not isinstance(given, Mapping | None):
        return spec
    own = {name: value for name, value in (given or {}).items() if value not in (None, "")}
    if "uri" in own:
        return spec
    return {**spec, "store": {"uri": default.uri, **own} if own else store_of(default)}


def store_of(default: DefaultStore) -> dict[str, Any]:
    """As ``spec.store`` has it."""
    secret = {"secretRef": {"name": default.secret}} if default.secret else {}
    account = {"serviceAccountName": default.service_account_name} if default.service_account_name else {}
    return {"uri": default.uri, **secret, **account}
