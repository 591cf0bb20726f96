"""A collector for traces on loopback: takes OTLP over HTTP, decodes the protobuf and keeps what came."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from support.http_server import answering

ERROR = 2  # STATUS_CODE_ERROR


@dataclass(frozen=True, kw_only=True)
class Received:
    """One span. Ids are hex digits; ``parent`` is empty for a root."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    failed: bool
    attributes: dict[str, Any]


@dataclass
class Collector:
    endpoint: str = ""
    spans: list[Received] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)

    def named(self, name: str) -> list[Received]:
        return [one for one in list(self.spans) if one.name == name]

    def below(self, parent: Received) -> list[str]:
        return [one.name for one in list(self.spans) if one.parent == parent.id]

    def take(self, path: str, body: bytes) -> None:
        self.paths.add(path)
        for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = str(_plain(batch.resource.attributes)["service.name"])
            self.spans += [
                Received(
                    service=service, name=span.name, trace=span.trace_id.hex(), id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(), failed=span.status.code == ERROR,
                    attributes=_plain(span.attributes),
                )
                for scope in batch.scope_spans for span in scope.spans
            ]


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Until the block ends, at ``endpoint``."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with answering(Handler) as port:
        collector.endpoint = f"http://127.0.0.1:{port}"
        yield collector
