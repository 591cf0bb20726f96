"""Answers with many objects: packed ones, and pages that need not be parsed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from aiohttp import web
from kubernetes.aio.client.configuration import Configuration

from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import POD


async def test_a_long_list_is_unpacked() -> None:
    names = [f"pod-{number}" for number in range(5000)]

    async def listed(_: web.Request) -> web.Response:
        page = web.json_response({"items": [{"metadata": {"name": name}} for name in names], "metadata": {}})
        page.enable_compression(web.ContentCoding.gzip)
        return page

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/a/pods", listed)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with KubeClient(Configuration(host=f"http://127.0.0.1:{port}")) as kube:
            assert [pod["metadata"]["name"] for pod in await kube.list_all(POD, "a")] == names
    finally:
        await runner.cleanup()


class Kept:
    """Remembers the content of each page, and what it was told of."""

    def __init__(self) -> None:
        self.pages: dict[int, bytes] = {}
        self.told: list[int] = []

    def as_before(self, number: int, content: bytes) -> bool:
        return self.pages.get(number) == content

    def parsed(self, number: int, content: bytes, items: Sequence[Object]) -> None:
        self.pages[number] = content
        self.told.append(len(items))


async def test_a_page_with_the_same_items_is_not_parsed_and_the_next_one_is_read() -> None:
    """Version and token of the list change with each answer."""
    answers, names = itertools.count(), [["a", "b"], ["c"]]

    async def listed(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "identity", "packing costs the apiserver more than sending"
        token = request.query.get("continue", "")
        head = {"resourceVersion": str(next(answers)), "continue": "" if token else "t"}
        page = {"kind": "PodList", "metadata": head,
                "items": [{"metadata": {"name": name}} for name in names[1 if token else 0]]}
        return web.Response(text=json.dumps(page, separators=(",", ":")), content_type="application/json")

    app, known = web.Application(), Kept()
    app.router.add_get("/api/v1/namespaces/a/pods", listed)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with KubeClient(Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")) as kube:
            async def gathered() -> list[str]:
                return await kube.gather(POD, "a", lambda raw: str(raw["metadata"]["name"]), known=known)

            assert await gathered() == ["a", "b", "c"]
            assert await gathered() == []
            names[1].append("d")
            assert await gathered() == ["c", "d"]
            assert known.told == [2, 1, 2]
    finally:
        await runner.cleanup()
