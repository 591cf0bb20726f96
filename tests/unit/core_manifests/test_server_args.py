"""Arguments for every tritonserver: what would take away what somebody asks for is refused, all else is the user's."""

from __future__ import annotations

import pytest

from enginewright.core.config import OperatorConfig
from enginewright.core.server_args import bad_arguments


@pytest.mark.parametrize(("argument", "text", "words"), [
    (["--http-port=9000"], "--http-port=9000", "is 8000 on each replica, for the Service, the probes"),
    (["--log-verbose=1", "--grpc-port", "9001"], "--grpc-port=9001", "is 8001 on each replica, for the Service"),
    (["--metrics-port=8003"], "--metrics-port=8003", "is 8002 on each replica, for the operator"),
    (["--http-p=1"], "--http-p=1", "is 8000 on"),
    (["--http-port"], "--http-port=", "is 8000 on"),
    (["--allow-http=false"], "--allow-http=false", "is used by the Service, the probes and the start-up test"),
    (["--allow-grpc=0"], "--allow-grpc=0", "is used by the Service"),
    (["--allow-metrics=OFF"], "--allow-metrics=OFF", "is used by the operator"),
    (["--sagemaker-port=8003"], "--sagemaker-port=8003", "is the port of the quality monitor on each replica"),
    (["--vertex-ai-port", "8002"], "--vertex-ai-port=8002", "is the port of its --metrics-port on each replica"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_what_is_refused(argument: list[str], text: str, words: str) -> None:
    (bad,) = bad_arguments(argument)
    assert argument[bad.index].startswith(text.partition("=")[0])
    assert bad.text == text
    assert words in bad.message
    assert bad.remedy.startswith(("remove it", "choose another"))


@pytest.mark.parametrize("arguments", [
    OperatorConfig().server_args, ("--http-port=8000",), ("--metrics-port", "8002"), ("--allow-metrics=true",),
    ("--sagemaker-port=8080",), ("--metrics-config=summary_latencies=true", "--metrics-interval-ms=8003"),
    ("--trace-config=mode=opentelemetry", "--trace-config=opentelemetry,url=http://collector:8003/v1/traces"),
    ("--http-address=::", "--http-thread-count=9"), ("--", "8003"), ("--log-verbose", "--http-port=8000"),
], ids=str)
def test_all_else_is_the_users(arguments: tuple[str, ...]) -> None:
    assert not list(bad_arguments(arguments))
