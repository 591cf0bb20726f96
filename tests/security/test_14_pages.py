"""Finding 14: others choose how large the objects of a page are, which the operator must not hold or parse at once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes.aio.client.configuration import Configuration

from enginewright.clients.errors import TooLargeError
from enginewright.clients.kube import ANSWER_BYTES, PAGE, PAGE_BYTES, KubeClient
from enginewright.clients.resources import CONFIG_MAP
from support.http_server import Handler, answering


class Apiserver(Handler):
    """ConfigMaps of ``sizes`` bytes each, in pages."""

    sizes: list[int]
    sent: list[int]

    def answer(self, body: bytes) -> None:
        query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        start = int(query.get("continue", 0))
        end = min(start + int(query["limit"]), len(self.sizes))
        self.sent.append(end - start)
        page = {"metadata": {"continue": str(end)} if end < len(self.sizes) else {},
                "items": [{"metadata": {"name": str(number)}, "data": {"a": "x" * self.sizes[number]}}
                          for number in range(start, end)]}
        self.send(HTTPStatus.OK, json.dumps(page).encode(), {"Content-Type": "application/json"})


@contextlib.asynccontextmanager
async def apiserver(sizes: list[int]) -> AsyncIterator[tuple[KubeClient, list[int]]]:
    sent: list[int] = []
    with answering(type("Bound", (Apiserver,), {"sizes": sizes, "sent": sent})) as port:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{port}"
        async with KubeClient(configuration, deadline=600.0) as kube:
            yield kube, sent


async def test_a_page_of_large_objects_is_asked_for_in_smaller_ones() -> None:
    async with apiserver([1 << 20] * 30) as (kube, sent):
        found = await kube.gather(CONFIG_MAP, "prod", lambda raw: raw["metadata"]["name"])
    assert found == [str(number) for number in range(30)]
    taken = sent[sent.index(1):]
    assert taken == [1] * 30
    assert sent[:-len(taken)] == [30, 25, 6]


async def test_small_objects_come_a_page_at_a_time() -> None:
    async with apiserver([100] * (2 * PAGE)) as (kube, sent):
        assert len(await kube.list_all(CONFIG_MAP, "prod")) == 2 * PAGE
    assert sent == [PAGE, PAGE]


async def test_one_object_may_be_as_large_as_kubernetes_takes() -> None:
    async with apiserver([PAGE_BYTES + 1]) as (kube, sent):
        assert len(await kube.list_all(CONFIG_MAP, "prod")) == 1
    assert sent[-1] == 1


async def test_an_answer_without_end_is_not_read_to_it() -> None:
    async with apiserver([ANSWER_BYTES]) as (kube, _):
        with pytest.raises(TooLargeError):
            await kube.list_all(CONFIG_MAP, "prod")
        with pytest.raises(TooLargeError):
            await kube.find(CONFIG_MAP, "prod", "0", most=1000)
