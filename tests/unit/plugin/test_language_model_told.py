"""What people are told of a language model that serves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from enginewright.core.config import OperatorConfig, Prices
from enginewright.core.servers.vllm import VLLM
from enginewright.plugin.measured import queries
from enginewright.plugin.screen import rows, table
from enginewright.plugin.words import explain
from support.cluster import Cluster, resolved
from support.published_language_model import TOKENS, built_language_model


def seen(**published: Any) -> tuple[dict[str, Any], Cluster]:
    cluster = Cluster(config=OperatorConfig(prices=Prices(currency="EUR", per_hour={"cpu": 0.36})))
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built_language_model(built_at=cluster.now, **published), of="build")
    cluster.settle()
    meta = {"name": cluster.name, "namespace": "prod", "generation": cluster.generation}
    return {"metadata": meta, "spec": cluster.spec, "status": cluster.status}, cluster


def test_it_is_explained_in_tokens() -> None:
    obj, cluster = seen()
    said = explain(obj, cluster.now)
    assert said.headline == "minilm serves what its spec asks for."
    assert said.facts[0].startswith("Language model: vllm bf16, n-grams (")
    assert ("1.50 times what the unquantised model serves by vLLM's own settings, p99 98 ms until the first token, "
            "p99 14.5 ms for each token after it, 640.0 tokens a second, accuracy at least 0.9955.") in said.facts[0]
    assert said.facts[-2:] == ("Cost: 0.1562 EUR for a million tokens at the objective.",
                               "One replica more costs 0.36 EUR an hour and answers up to 640 tokens a second more.")


def test_what_the_model_took_of_proposed_tokens_is_told() -> None:
    obj, cluster = seen(name="draft small, 4 tokens", draft="small", tokens=replace(TOKENS, proposed=2120, accepted=0))
    assert obj["status"]["engine"]["tokens"]["acceptedTokens"] == 0
    assert "640.0 tokens a second, 0 of 2,120 proposed tokens taken, accuracy" in explain(obj, cluster.now).facts[0]


def test_its_row_has_no_figures_of_inferences() -> None:
    obj, _ = seen()
    (row,) = rows([obj])
    assert (row["ENGINE"], row["COST/M"], row["REASON"]) == ("vllm bf16", "0.1562 EUR", "Serving")
    assert (row["BUILD-P99"], row["REPLICA/S"], row["INF/J"]) == ("", "", "")
    assert table([obj]).row_count == 1


def test_its_report_asks_prometheus_for_vllms_names() -> None:
    asked = queries('namespace="prod"', 15.0, VLLM.metrics)
    assert asked["queued"] == 'sum(vllm:num_requests_waiting{namespace="prod"})'
    assert asked["rate"] == 'sum(rate(vllm:request_success_total{namespace="prod"}[120s]))'
