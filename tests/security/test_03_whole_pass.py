"""Finding 3, as a pass meets it: a namespace full of engine records, of others and of somebody who means harm."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes.aio.client.configuration import Configuration

from enginewright.clients.kube import KubeClient
from enginewright.clients.probe import ProbeClient
from enginewright.clients.prometheus import PrometheusClient
from enginewright.clients.triton import TritonClient
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests import engine_record
from enginewright.core.observed import ClaimView, EngineRecord
from enginewright.observe.world import World
from enginewright.reconcile.metrics import Metrics
from enginewright.runtime import Operator, Options
from enginewright_builder.contract import load as contract_load
from support.cluster import SPEC, Cluster
from support.http_server import Handler, answering

STORE = "pvc://enginewright-store"


class Apiserver(Handler):
    """ConfigMaps, selected by name and by whether they are records, as Kubernetes does; nothing of other kinds."""

    maps: list[dict[str, Any]]

    def answer(self, body: bytes) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        name = query.get("fieldSelector", "").removeprefix("metadata.name=")
        there = url.path.endswith("/configmaps") and query.get("labelSelector") == "enginewright.io/engine=true"
        found = [one for one in self.maps if there and name in ("", one["metadata"]["name"])]
        self.send(HTTPStatus.OK, json.dumps({"items": found}).encode(), {"Content-Type": "application/json"})


def config_map(record: EngineRecord, number: int) -> dict[str, Any]:
    raw = engine_record("prod", ClaimView(name="enginewright-store", uid="c", phase="Bound"), STORE, record.outcome)
    raw["metadata"] |= {"uid": f"u-{number}", "resourceVersion": "1"}
    return raw


@contextlib.asynccontextmanager
async def world(*maps: dict[str, Any]) -> AsyncIterator[World]:
    with answering(type("Bound", (Apiserver,), {"maps": maps})) as port:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{port}"
        options = Options(config=OperatorConfig(observe_nodes=False), namespaces=("prod",))
        async with (KubeClient(configuration, deadline=600.0) as kube, TritonClient() as triton,
                    PrometheusClient() as prometheus, ProbeClient() as probes):
            yield Operator(options, kube, triton, prometheus, probes, Metrics()).loop._reconciler._parts.world


async def test_passes_parse_what_they_need_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(spec=SPEC)
    cluster.settle()
    (mine,) = cluster.records.values()
    others = [replace(mine, outcome=replace(mine.outcome, fingerprint=f"{number:064x}")) for number in range(50)]
    maps = [config_map(one, number) for number, one in enumerate([mine, *others])]
    maps[7]["data"]["outcome.json"] = "[" * 900_000
    load = Mock(wraps=contract_load)
    monkeypatch.setattr("enginewright_builder.contract.outcome.load", load)
    async with world(*maps) as looked_at:
        for _ in range(3):
            assert mine.fingerprint in (await looked_at.observe(cluster.view(), None)).records
    assert load.call_count == 1
