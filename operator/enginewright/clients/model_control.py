"""Triton's model control, of one replica: what its dynamic batcher does, and another setting for it.

Loading a model whose configuration differs in more than its instances makes Triton load it once more beside the one
that serves, swap them, and let the old one end what it has: nothing is lost, and for that time there are two (triton
core, ``model_lifecycle.cc``). The configuration is the one that the replica has, read from it and sent back with other
batching, so that nothing else can change. A client that may load a configuration may run code there, so that replicas
open model control only to those who know a key (``--http-restricted-api``, ``--grpc-restricted-protocol``). Triton
counts the requests of the model's warm-up in its metrics, at each load.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from enginewright.clients.errors import RefusedError, UnexpectedError
from enginewright.clients.pods import PodClient, answered, body_of, refusal
from enginewright.clients.probe import CONNECTIONS
from enginewright.clients.urls import pod_url
from enginewright.core.batching import Setting
from enginewright.core.labels import HTTP_PORT, KEY_HEADER

LARGEST_ANSWER: Final = 1 << 20


class ModelControl(PodClient):
    """``deadline`` is seconds for one call: loading takes as long as at the replica's start."""

    def __init__(self, key: str = "", *, deadline: float = 60.0) -> None:
        super().__init__(deadline=deadline, largest=LARGEST_ANSWER, connections=CONNECTIONS)
        self._headers = {KEY_HEADER: key} if key else {}

    async def batching(self, address: str, model: str, port: int = HTTP_PORT) -> Setting:
        """What the replica does now. The maximum alone is what Triton makes of no preferred sizes, and counts as none.
        Raises as :meth:`apply` does."""
        return _setting(await self._config(address, model, port))

    async def apply(self, address: str, model: str, setting: Setting, port: int = HTTP_PORT) -> bool:
        """Returns once the replica serves with ``setting``; False when it did already. Raises :class:`TransientError`
        when it does not answer, :class:`RefusedError` when it does not load that or the key is wrong, and then goes on
        as before; :class:`UnexpectedError` for an answer that cannot be read."""
        config = await self._config(address, model, port)
        if "dynamic_batching" not in config:
            raise RefusedError(f"model {model!r} forms no batches, so batching cannot be changed",
                               call=f"load {model}")
        if _setting(config) == setting:
            return False
        changed = {**config, "dynamic_batching": {
            **config["dynamic_batching"], "preferred_batch_size": list(setting.preferred),
            "max_queue_delay_microseconds": setting.delay_us}}
        body = {"parameters": {"config": json.dumps(changed)}}
        await self._ask("POST", pod_url(address, port, "v2", "repository", "models", model, "load"), body)
        return True

    async def _config(self, address: str, model: str, port: int) -> dict[str, Any]:
        url = pod_url(address, port, "v2", "models", model, "config")
        try:
            found = json.loads(await self._ask("GET", url))
        except (ValueError, RecursionError) as error:
            raise UnexpectedError("its configuration is not JSON", call=f"GET {url}") from error
        if not isinstance(found, dict):
            raise UnexpectedError("its configuration is not a JSON object", call=f"GET {url}")
        return found

    async def _ask(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> bytes:
        call = f"{method} {url}"
        async with (
            answered(self._deadline, call),
            self._session.request(method, url, json=body, headers=self._headers) as response,
        ):
            if response.status != 200:
                raise RefusedError(refusal(response.status), call=call, status=response.status)
            answer = await body_of(response, LARGEST_ANSWER)
            if answer is None:
                raise UnexpectedError(f"the answer is larger than {LARGEST_ANSWER} bytes, or in too many pieces",
                                      call=call)
            return answer


def _setting(config: Mapping[str, Any]) -> Setting:
    """Raises :class:`UnexpectedError`."""
    batching = config.get("dynamic_batching", {})
    try:
        sizes = tuple(int(size) for size in batching.get("preferred_batch_size", ()))
        return Setting(delay_us=int(batching.get("max_queue_delay_microseconds", 0)),
                       preferred=() if sizes == (int(config.get("max_batch_size", 0)),) else sizes)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise UnexpectedError("its dynamic_batching is not in Triton's form") from error
