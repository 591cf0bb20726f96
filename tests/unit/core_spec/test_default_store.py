"""The store of objects that name none."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core.access import store_access
from enginewright.core.config import DefaultStore
from enginewright.core.default_store import store_of, with_store
from enginewright.core.spec import Spec, parse_spec

BUCKET = DefaultStore(uri="s3://engines/all", secret="keys", service_account_name="writer")
SOURCE = {"uri": "pvc://models/a"}


def spec(raw: dict[str, Any], default: DefaultStore) -> Spec:
    found = parse_spec(with_store({"source": SOURCE, **raw}, default))
    assert isinstance(found, Spec), found
    return found


@pytest.mark.parametrize(("raw", "uri", "access"), [
    ({}, "s3://engines/all", {"secret": "keys", "serviceAccount": "writer"}),
    ({"store": None}, "s3://engines/all", {"secret": "keys", "serviceAccount": "writer"}),
    ({"store": {}}, "s3://engines/all", {"secret": "keys", "serviceAccount": "writer"}),
    ({"store": {"uri": None, "serviceAccountName": ""}}, "s3://engines/all",
     {"secret": "keys", "serviceAccount": "writer"}),
    ({"store": {"secretRef": {"name": "mine"}}}, "s3://engines/all", {"secret": "mine"}),
    ({"store": {"credentialsFrom": {"name": "mine"}}}, "s3://engines/all", {"secret": "mine"}),
    ({"store": {"serviceAccountName": "me"}}, "s3://engines/all", {"serviceAccount": "me"}),
    ({"store": {"uri": "s3://engines/own"}}, "s3://engines/own", {}),
    ({"store": {"uri": "pvc://enginewright-store"}}, "pvc://enginewright-store", {}),
])
def test_a_store_that_is_not_named_is_the_default(raw: dict[str, Any], uri: str, access: dict[str, str]) -> None:
    found = spec(raw, BUCKET)
    assert (found.store.uri, store_access(found)) == (uri, access)


@pytest.mark.parametrize("raw", [{}, {"store": {}}, {"store": {"uri": "pvc://mine"}}, {"store": "pvc://mine"}])
def test_without_a_default_a_spec_stays_as_it_is(raw: dict[str, Any]) -> None:
    assert with_store(raw, DefaultStore()) is raw


@pytest.mark.parametrize("store", ["pvc://mine", ["a"], 7])
def test_rubbish_stays_for_the_parser_to_refuse(store: object) -> None:
    raw = {"source": SOURCE, "store": store}
    assert with_store(raw, BUCKET) is raw
    assert not isinstance(parse_spec(raw), Spec)


def test_a_volume_has_no_credentials() -> None:
    assert store_of(DefaultStore(uri="pvc://engines")) == {"uri": "pvc://engines"}
