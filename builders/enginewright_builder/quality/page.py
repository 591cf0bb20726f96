"""What the monitor tells: ``/quality`` for the operator, ``/metrics`` for Prometheus. Figures alone, no tensors."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from enginewright_builder.contract import QualityReport

READ_SECONDS = 5.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The newest report, and how many traces could not be read or scored."""

    report: QualityReport
    skipped: int = 0


def metrics(snapshot: Snapshot) -> str:
    """In Prometheus's text format. Names are API: ``docs/reference/metrics.md``."""
    report = snapshot.report
    mean = report.total / report.samples if report.samples else float("nan")
    figures = (
        ("enginewright_quality_replica_agreement", "gauge", "Mean score of the window, 0 to 1.", mean),
        ("enginewright_quality_replica_samples", "gauge", "Requests in the window.", report.samples),
        ("enginewright_quality_replica_requests_total", "counter", "Requests that were sampled.", report.requests),
        ("enginewright_quality_replica_skipped_total", "counter", "Traces that could not be read or scored.",
         snapshot.skipped),
    )
    return "".join(f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {value}\n"
                   for name, kind, text, value in figures)


@contextmanager
def served(snapshot: Callable[[], Snapshot], port: int) -> Iterator[int]:
    """Answers in a thread of its own for the length of the block; gives the port, which 0 leaves to the system."""

    class Handler(BaseHTTPRequestHandler):
        timeout = READ_SECONDS

        def do_GET(self) -> None:
            if self.path == "/quality":
                kind, body = "application/json", snapshot().report.to_json().encode()
            elif self.path == "/metrics":
                kind, body = "text/plain; version=0.0.4", metrics(snapshot()).encode()
            else:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Scrapes are no news."""

    server = _Server(("", port), Handler)
    thread = threading.Thread(target=server.serve_forever, name="page", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def idle(metric: str, tolerance: float, problem: str, port: int) -> int:
    """Says what is wrong for as long as the pod lives: nothing but another engine or more memory helps."""
    log.warning("nothing is measured: %s", problem)
    snapshot = Snapshot(report=QualityReport(metric=metric, tolerance=tolerance, problem=problem))
    with served(lambda: snapshot, port):
        threading.Event().wait()
    return 0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()
