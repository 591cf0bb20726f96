"""Ports on loopback for servers that are about to start."""

from __future__ import annotations

import contextlib
import random
import socket

HOST = "127.0.0.1"
# Below those that the kernel gives to outgoing connections (32768 and up, ip_local_port_range) and those of Kubernetes'
# node ports: a port from among them may be taken by any connection before the server binds it.
QUIET = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens now; all are held while choosing, so that they differ. Raises ``OSError`` where
    there are not as many."""
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        for port in random.sample(QUIET, len(QUIET)):
            if len(found) == count:
                return found
            holder = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                holder.bind((HOST, port))
                found.append(port)
    raise OSError(f"fewer than {count} free ports from {QUIET.start} to {QUIET.stop - 1}")
