"""tritonserver: tensors, and models of many kinds."""

from __future__ import annotations

from typing import Final

from enginewright.core import labels
from enginewright.core.servers import Metrics, Port, Server

TRITON: Final = Server(
    program=("tritonserver",),
    ports=(
        Port(name=labels.PORT_HTTP, number=labels.HTTP_PORT, option="http-port", protocol="http",
             used_by="the Service, the probes and the start-up test"),
        Port(name=labels.PORT_GRPC, number=labels.GRPC_PORT, option="grpc-port", protocol="kubernetes.io/h2c",
             used_by="the Service"),
        Port(name=labels.PORT_METRICS, number=labels.METRICS_PORT, option="metrics-port", protocol="http",
             used_by="the operator"),
    ),
    exit_option="exit-timeout-secs",
    live_path="/v2/health/live",
    ready_path="/v2/health/ready",
    # The Open Inference Protocol's: https://github.com/kserve/open-inference-protocol
    api_prefix="/v2",
    metrics=Metrics(
        model_label="model",
        pending="nv_inference_pending_request_count",
        successes="nv_inference_request_success",
        busy="nv_inference_request_duration_us",
        queued_for="nv_inference_queue_duration_us",
        microseconds=1.0,
    ),
)
