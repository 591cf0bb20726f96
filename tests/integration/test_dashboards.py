"""The dashboards' panels about the operator, asked of a real Prometheus that scrapes a real operator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from enginewright.reconcile.http import metrics_app, serving
from support.apiserver import Models, eventually, model
from support.dashboards import expressions
from support.fake_kubelet import FakeKubelet
from support.operators import embedded
from support.prometheus import answers, running


@pytest.fixture
async def prometheus(operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path
                     ) -> AsyncIterator[str]:
    """Of an operator that has brought one model up, and knows a language model."""
    async with (
        embedded(operator_kubeconfig, namespace) as operator,
        serving(metrics_app(operator.metrics.registry), 0) as port,
        running(tmp_path, [{"targets": [f"127.0.0.1:{port}"]}]) as url,
    ):
        await models.create(model(autoscaling={"maxReplicas": 2},
                                  objective={"latency": {"percentile": 99, "milliseconds": 50}}))
        await models.wait("Ready", "True")
        await models.create(model("chat", task="generate", accuracy={"evaluation": {"uri": "pvc://models/prompts.jsonl"}},
                                  objective={"tokens": {"ttftMilliseconds": 400, "tpotMilliseconds": 50}}))
        yield url


# Of a model on a GPU, and of replicas that answer requests.
NOT_HERE = ("enginewright_gpu_", "enginewright_failed_requests", "per_joule", "live_latency")


async def test_no_panel_about_the_operator_is_empty(prometheus: str, namespace: str) -> None:
    variables = {"__rate_interval": "1m", "namespace": namespace}
    asked = [(panel, text.replace("$model", "chat" if panel.startswith("language-model: ") else "minilm"))
             for panel, text in expressions("enginewright_", variables)
             if not any(metric in text for metric in NOT_HERE)]
    assert len(asked) > 7
    async with httpx.AsyncClient() as http:

        async def no_panel_is_empty() -> bool:
            empty = [panel for panel, text in asked if not await answers(http, prometheus, text)]
            assert empty == []
            return True

        await eventually(no_panel_is_empty)
