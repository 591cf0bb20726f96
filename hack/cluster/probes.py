"""Wait until something is ready, and give up early when the process behind it has ended."""

from __future__ import annotations

import http
import http.client
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.process import is_alive, read_record
from cluster.steps import ClusterError

Probe = Callable[[], bool]
POLL_S = 0.05


class ProcessEndedError(ClusterError):
    """What was waited for will not come: its process has ended."""


def wait_for(what: str, probe: Probe, record: Path, log: Path, timeout_s: float) -> None:
    """Poll `probe` until it holds.

    Raises:
        ProcessEndedError: the recorded process has ended.
        ClusterError: `timeout_s` seconds have passed.
    """
    deadline = time.monotonic() + timeout_s
    while not probe():
        process = read_record(record)
        if process is None or not is_alive(process):
            raise ProcessEndedError(f"{what} ended before it was ready", log)
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} is not ready after {timeout_s:.0f} s", log)
        time.sleep(POLL_S)


def socket_accepts(path: Path) -> Probe:
    """Holds when something listens on the Unix socket `path`."""

    def probe() -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(path))
            except OSError:
                return False
            return True

    return probe


@dataclass(frozen=True)
class Client:
    """The client over TLS: a certificate in `pki`, and the authority that the server must be certified by."""

    pki: Path
    name: str = "admin"
    authority: str = "ca"


def http_ok(port: int, path: str, host: str = "127.0.0.1", client: Client | None = None) -> Probe:
    """Holds when GET answers 200, over TLS when there is a `client`."""

    def probe() -> bool:
        try:
            connection = _connect(host, port, client)
            try:
                connection.request("GET", path)
                return connection.getresponse().status == http.HTTPStatus.OK
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return False

    return probe


def _connect(host: str, port: int, client: Client | None) -> http.client.HTTPConnection:
    if client is None:
        return http.client.HTTPConnection(host, port, timeout=5)
    context = ssl.create_default_context(cafile=str(client.pki / f"{client.authority}.crt"))
    context.load_cert_chain(client.pki / f"{client.name}.crt", client.pki / f"{client.name}.key")
    return http.client.HTTPSConnection(host, port, timeout=5, context=context)
