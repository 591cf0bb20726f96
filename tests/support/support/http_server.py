"""Stand-ins that answer HTTP, on loopback unless pods of the test's own cluster are to ask them, in a thread of their
own."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Keeps connections, and says nothing on the terminal. ``answer`` gets what was posted, and nothing otherwise."""

    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # who asked may leave
            super().handle()

    def do_GET(self) -> None:
        self.answer(b"")

    def do_HEAD(self) -> None:
        self.answer(b"")

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers.get("content-length", 0))))

    def answer(self, body: bytes) -> None:
        raise NotImplementedError

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def send(self, status: HTTPStatus, body: bytes, headers: Mapping[str, str]) -> None:
        """The whole answer; to HEAD without its body."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Server(ThreadingHTTPServer):
    # The kernel drops connections beyond this number, and clients try again after 1, 3, 7 and 15 seconds. The library's
    # own 5 are too few for a test that connects many times at once.
    request_queue_size = 1024


@contextlib.contextmanager
def answering(handler: type[BaseHTTPRequestHandler], host: str = "127.0.0.1",
              tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """``handler`` answers for the length of the block. Gives the port."""
    server = Server((host, 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
