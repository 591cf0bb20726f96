"""What the collector of unused engines sees of the objects of a namespace."""

from __future__ import annotations

from typing import Any

from enginewright.core.config import DefaultStore
from enginewright.observe.references import asked, wish


def model(*, deleting: bool = False, **store: Any) -> dict[str, Any]:
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    return {"metadata": meta, "spec": {"store": store}}


def test_as_whom_buckets_are_used_is_what_specs_say_now() -> None:
    keys, account = {"name": "keys"}, "writer"
    assert asked(wish(one, DefaultStore()) for one in [
        model(uri="s3://engines/a", secretRef=keys),
        model(uri="s3://engines/a", secretRef=keys),
        model(uri="s3://engines/a", secretRef=keys, serviceAccountName=account),
        model(uri="s3://engines/b"),
        model(uri="s3://engines/b", secretRef={"name": "going"}, deleting=True),
        model(uri="pvc://store"),
        model(uri="S3://nonsense", secretRef=keys),
        {"metadata": {}, "spec": {}},
    ]) == {
        "s3://engines/a": {(("secret", "keys"),), (("secret", "keys"), ("serviceAccount", "writer"))},
        "s3://engines/b": {()},
    }


def test_a_model_without_a_store_uses_the_default_bucket() -> None:
    default = DefaultStore(uri="s3://engines/all", secret="keys")
    assert asked(wish(one, default) for one in [model(), model(uri="pvc://store"), model(deleting=True)]) == {
        "s3://engines/all": {(("secret", "keys"),)}}
