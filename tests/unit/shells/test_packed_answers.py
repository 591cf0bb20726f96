"""The apiserver packs answers of more than 128 KiB."""

from __future__ import annotations

from aiohttp import web
from kubernetes.aio.client.configuration import Configuration

from enginewright.clients.kube import KubeClient
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
