"""The pods of a namespace, as a watch of a real apiserver tells of them: lists again and again would keep it busy."""

from __future__ import annotations

import asyncio
import contextlib
import json

import aiohttp

from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import POD

# Of one watch, in seconds; the next begins where the apiserver is then.
LENGTH = 3600.0
PAUSE = 0.05


class FollowedPods:
    """``news`` is set by each change."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self._kube, self._namespace = kube, namespace
        self._known: dict[str, Object] = {}
        self.news = asyncio.Event()

    def now(self) -> list[Object]:
        return list(self._known.values())

    def know(self, pod: Object) -> None:
        """A write's answer, of which the watch may tell later only."""
        if pod["metadata"]["uid"] in self._known:
            self._keep(pod)

    async def follow(self) -> None:
        """Without end. Where a watch ends, another begins, with all pods that are there then."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, ValueError):
                await self._one_watch()
            await asyncio.sleep(PAUSE)

    async def _one_watch(self) -> None:
        api = self._kube._api
        url = f"{api.configuration.host}{POD.path(self._namespace)}?watch=true"
        answer = (await api.rest_client.request("GET", url, _request_timeout=LENGTH)).response
        try:
            answer.raise_for_status()
            self._known.clear()
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    self._keep(event["object"])
                elif event["type"] == "DELETED":
                    self._known.pop(event["object"]["metadata"]["uid"], None)
                else:
                    return  # an error
                self.news.set()
        finally:
            answer.close()

    def _keep(self, pod: Object) -> None:
        known = self._known.setdefault(pod["metadata"]["uid"], pod)
        if _version(known) < _version(pod):
            self._known[pod["metadata"]["uid"]] = pod


def _version(pod: Object) -> int:
    return int(pod["metadata"]["resourceVersion"])
