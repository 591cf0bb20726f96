"""Credentials for a source, and for a store in a bucket, and the parts of a pod that carry them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core.spec import Spec, StoreSpec
from enginewright.core.spec.base import in_bucket
from enginewright_builder.contract import SOURCE_VARIABLES, STORE_VARIABLES

SECRET, ACCOUNT = "secret", "serviceAccount"


def store_access(spec: Spec) -> dict[str, str]:
    """Names of a Secret and of a ServiceAccount; neither where the node's own identity has to do, or where the store is
    a volume."""
    return access_of(spec.store)


def access_of(store: StoreSpec) -> dict[str, str]:
    secret = store.secret_ref
    named = {SECRET: secret.name if secret else "", ACCOUNT: store.service_account_name}
    return {key: name for key, name in named.items() if name} if in_bucket(store.uri) else {}


def store_variables(access: Mapping[str, str]) -> list[dict[str, Any]]:
    """Of a container's ``envFrom``."""
    return _variables(STORE_VARIABLES, access.get(SECRET, ""))


def source_variables(spec: Spec) -> list[dict[str, Any]]:
    """Of a container's ``envFrom``."""
    secret = spec.source.secret_ref
    return _variables(SOURCE_VARIABLES, secret.name if secret else "")


def _variables(prefix: str, secret: str) -> list[dict[str, Any]]:
    """Behind a prefix: a user who writes the Secret chooses the names of its entries, such as ``LD_PRELOAD``."""
    return [{"prefix": prefix, "secretRef": {"name": secret}}] if secret else []


def account_of(name: str) -> dict[str, str]:
    """Of a pod's spec. Its token stays unmounted: what gives a pod its identity brings one of its own."""
    return {"serviceAccountName": name} if name else {}
