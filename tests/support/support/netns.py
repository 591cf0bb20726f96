"""Pods as far as a network policy sees them: a network namespace with an address each, and a router between them, where
the engine of sigs.k8s.io/kube-network-policies decides over the first packet of each connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import binaries
from cluster.packages import system_program

QUEUE = 100
DEADLINE_S = 60.0
# In the pod's namespace: listens at all ports and says so.
LISTEN = """
import json, socket, sys, time
ports = json.loads(sys.argv[1])
held = [socket.create_server(("0.0.0.0", port), backlog=1024) for port in ports]
print("listening", flush=True)
sys.stdin.read()
"""
# In the pod's namespace. Connections that a policy refuses get no answer. The router judges packets in their order:
# once a connection that was begun later has been let through, one that is not there yet was refused.
CONNECT = """
import json, select, socket, sys
deadline, wanted, others, last = json.loads(sys.argv[1])
for target in wanted:
    try:
        socket.create_connection(tuple(target), timeout=deadline).close()
    except OSError as error:
        sys.exit(f"{target}: {error}")
begun = []
for target in others:
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(tuple(target))
    begun.append(connection)
socket.create_connection(tuple(last), timeout=deadline).close()
_, there, _ = select.select([], begun, [], 0)
print(json.dumps([target for target, connection in zip(others, begun) if connection in there]))
"""
Object = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Something with an address, and the Pod object that the engine knows it by."""

    name: str
    address: str
    pod: Object


@dataclass(frozen=True)
class Network:
    """``names`` are the network namespaces by place."""

    names: dict[str, str]

    async def reached(self, source: Place, wanted: Sequence[tuple[str, int]], others: Sequence[tuple[str, int]],
                      last: tuple[str, int]) -> list[tuple[str, int]]:
        """Connects from ``source`` to each of ``wanted``, which must succeed, and tries ``others``; those of them that
        succeed. The connection to ``last`` must be allowed."""
        task = json.dumps([DEADLINE_S, wanted, others, last])
        process = await asyncio.create_subprocess_exec(
            *inside(self.names[source.name]), sys.executable, "-I", "-c", CONNECT, task,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, error = await process.communicate()
        assert process.returncode == 0, f"{source.name}: {error.decode()[-500:]}"
        return [(address, port) for address, port in json.loads(out)]


def inside(namespace: str) -> list[str]:
    return [str(system_program("ip")), "netns", "exec", namespace]


def ip(*arguments: str) -> None:
    subprocess.run([str(system_program("ip")), *arguments], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def network(
    places: Iterable[Place], policies: Iterable[Object], ports: tuple[int, ...], log: Path
) -> Iterator[Network]:
    """All ``places`` listen at ``ports``; ``policies`` are in force between them. The machine's own network is as it
    was: all lies in namespaces, which end with the block."""
    run = uuid.uuid4().hex[:6]
    router = f"ew-{run}-router"
    names: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        _namespace(stack, router)
        subprocess.run([*inside(router), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True)
        for index, place in enumerate(places):
            names[place.name] = f"ew-{run}-{index}"
            _namespace(stack, names[place.name])
            _connect(router, names[place.name], f"to{index}", place.address)
        held = [stack.enter_context(_listening(name, ports)) for name in names.values()]
        for process in held:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == b"listening"
        _queue(router)
        stack.enter_context(_engine(router, [*(place.pod for place in places), *policies], log))
        yield Network(names)


def _namespace(stack: contextlib.ExitStack, name: str) -> None:
    ip("netns", "add", name)
    stack.callback(ip, "netns", "delete", name)
    ip("-n", name, "link", "set", "lo", "up")


def _connect(router: str, name: str, interface: str, address: str) -> None:
    """As the node's plug-in `ptp` does: a pair of interfaces, and a way out over the router."""
    ip("-n", router, "link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", name)
    ip("-n", router, "address", "add", "10.88.255.254/32", "dev", interface)
    ip("-n", router, "link", "set", interface, "up")
    ip("-n", name, "address", "add", f"{address}/32", "dev", "eth0")
    ip("-n", name, "link", "set", "eth0", "up")
    ip("-n", name, "route", "add", "10.88.255.254", "dev", "eth0")
    ip("-n", name, "route", "add", "default", "via", "10.88.255.254")
    ip("-n", router, "route", "add", f"{address}/32", "dev", interface)


@contextlib.contextmanager
def _listening(name: str, ports: tuple[int, ...]) -> Iterator[subprocess.Popen[bytes]]:
    command = [*inside(name), sys.executable, "-I", "-c", LISTEN, json.dumps(ports)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _queue(router: str) -> None:
    """Without a reader the kernel drops what is queued."""
    rule = [str(system_program("iptables")), "-A", "FORWARD", "-m", "conntrack", "--ctstate", "NEW", "-j", "NFQUEUE",
            "--queue-num", str(QUEUE)]
    subprocess.run([*inside(router), *rule], check=True, capture_output=True)


@contextlib.contextmanager
def _engine(router: str, objects: list[Object], log: Path) -> Iterator[None]:
    command = [*inside(router), str(binaries.build(binaries.NETWORK_POLICIES)), "--node=node", f"--queue={QUEUE}"]
    with log.open("wb") as stream, subprocess.Popen(command, stdin=subprocess.PIPE, stderr=stream) as process:
        assert process.stdin is not None
        process.stdin.write(b"".join(json.dumps(each).encode() + b"\n" for each in objects))
        process.stdin.close()
        try:
            _until_it_reads(router, process, log)
            yield
        finally:
            process.terminate()


def _until_it_reads(router: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    listed = [*inside(router), "cat", "/proc/net/netfilter/nfnetlink_queue"]
    while not subprocess.run(listed, capture_output=True, check=True).stdout.strip():
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.02)
