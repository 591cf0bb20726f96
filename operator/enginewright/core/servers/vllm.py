"""vLLM: one causal language model for each process, by OpenAI's API. Its metrics are a page of the HTTP port."""

from __future__ import annotations

from typing import Final

from enginewright.core import labels
from enginewright.core.servers import Metrics, Port, Server

VLLM: Final = Server(
    program=("vllm", "serve"),
    ports=(Port(name=labels.PORT_HTTP, number=labels.HTTP_PORT, option="port", protocol="http",
                used_by="the Service, the probes and the operator"),),
    exit_option="shutdown-timeout",
    # One for both: it starts to answer when the model is loaded, and says 500 when the engine's process has ended.
    live_path="/health",
    ready_path="/health",
    api_prefix="/v1",
    metrics=Metrics(
        model_label="model_name",
        pending="vllm:num_requests_waiting",
        successes="vllm:request_success_total",
        busy="vllm:e2e_request_latency_seconds_sum",
        queued_for="vllm:request_queue_time_seconds_sum",
        microseconds=1e6,
    ),
)
