"""Finding 14 on a real apiserver: lists come in pages, and as metadata where that is enough."""

from __future__ import annotations

import json
from typing import Any

import pytest

from enginewright.clients import kube as client
from enginewright.clients.errors import RefusedError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import CONFIG_MAP
from enginewright.core import labels
from support.apiserver import Models, manifest

MINE = f"{labels.ENGINE}=true"


async def filled(kube: KubeClient, namespace: str, count: int) -> list[str]:
    names = [f"c-{number:02}" for number in range(count)]
    for name in names:
        body = {**manifest("v1", "ConfigMap", name), "data": {"a": "x" * 1000}}
        body["metadata"]["labels"] = {labels.ENGINE: "true"}
        await kube.create(body, namespace=namespace)
    return names


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The answers to lists, of four objects each at most."""
    seen: list[dict[str, Any]] = []
    real = KubeClient._call

    async def watched(self: KubeClient, verb: str, *arguments: Any, **named: Any) -> tuple[str, bytes]:
        call, payload = await real(self, verb, *arguments, **named)
        if verb == "list":
            seen.append(json.loads(payload))
        return call, payload

    monkeypatch.setattr(client, "PAGE", 4)
    monkeypatch.setattr(client, "METADATA_PAGE", 4)
    monkeypatch.setattr(KubeClient, "_call", watched)
    return seen


@pytest.mark.parametrize("metadata", [True, False])
async def test_a_list_comes_in_pages(models: Models, pages: list[dict[str, Any]], metadata: bool) -> None:
    names = await filled(models.kube, models.namespace, 10)
    pages.clear()
    found = await models.kube.gather(CONFIG_MAP, models.namespace, lambda raw: raw["metadata"]["name"], labels=MINE,
                                     metadata=metadata)
    assert found == names
    assert [len(page["items"]) for page in pages] == [4, 4, 2]
    assert {page["kind"] for page in pages} == {"PartialObjectMetadataList" if metadata else "ConfigMapList"}
    assert all(("data" in item) is not metadata for page in pages for item in page["items"])


async def test_a_list_begins_again_when_its_token_has_expired(
    models: Models, pages: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the apiserver says it, five minutes after the list began."""
    names = await filled(models.kube, models.namespace, 6)
    pages.clear()
    real, spoilt = KubeClient._call, list[str]()

    async def call(self: KubeClient, verb: str, *arguments: Any, query: Any = None, **named: Any) -> Any:
        if verb == "list" and "continue" in (query or {}) and not spoilt:
            spoilt.append(query["continue"])
            raise RefusedError("410 the provided continue parameter is too old", status=410, reason="Expired")
        return await real(self, verb, *arguments, query=query, **named)

    monkeypatch.setattr(KubeClient, "_call", call)
    found = await models.kube.gather(CONFIG_MAP, models.namespace, lambda raw: raw["metadata"]["name"], labels=MINE)
    assert found == names
    assert [len(page["items"]) for page in pages] == [4, 4, 2]


async def test_one_object_is_found_by_its_name_without_a_right_to_get_it(models: Models) -> None:
    await filled(models.kube, models.namespace, 3)
    found = await models.kube.find(CONFIG_MAP, models.namespace, "c-01", labels=MINE, most=1 << 16)
    assert found is not None
    assert found["metadata"]["name"] == "c-01"
    assert await models.kube.find(CONFIG_MAP, models.namespace, "c-09", labels=MINE, most=1 << 16) is None
    assert await models.kube.find(CONFIG_MAP, models.namespace, "c-01", labels="a=b", most=1 << 16) is None
