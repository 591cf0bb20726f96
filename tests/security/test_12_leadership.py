"""An operator works only while it holds its Lease: a blocked event loop does not lose it, nothing is sent after it has
run out, and what routes traffic is bound to what it was decided on.

The apiserver here is a thread of this process that knows Leases only.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import LEASE
from enginewright.core.config import OperatorConfig
from enginewright.core.plan import Apply
from enginewright.runtime import Operator, Options, run
from support.cluster import Cluster

PATIENCE: Final = 60.0
GOLDEN: Final = Path(__file__).parents[1] / "integration" / "chart" / "golden" / "default.yaml"
JSON = dict[str, Any]


class Leases(ThreadingHTTPServer):
    """``written`` are the Leases by path, ``renewals`` how many writes there were to any of them; ``others`` the paths
    of writes to anything else."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.written: dict[str, JSON] = {}
        self.others: list[str] = []
        self.renewals = 0
        self.changed = threading.Condition()

    def renewed(self, times: int) -> bool:
        """Blocks until there were so many writes more."""
        with self.changed:
            wanted = self.renewals + times
            return self.changed.wait_for(lambda: self.renewals >= wanted, PATIENCE)

    def write(self, path: str, body: JSON) -> JSON:
        with self.changed:
            old = self.written.get(path, {})
            self.renewals += 1
            metadata = {"name": path.rsplit("/", 1)[1], "resourceVersion": str(self.renewals)}
            self.written[path] = {"metadata": metadata, "spec": {**old.get("spec", {}), **body["spec"]}}
            self.changed.notify_all()
            return self.written[path]


class Answer(BaseHTTPRequestHandler):
    server: Leases
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found = self.server.written.get(self.path.split("?")[0])
        self.say(200 if found else 404, found or {"kind": "Status", "code": 404})

    def do_POST(self) -> None:
        body = self.body()
        if self.path.split("?")[0].endswith("/leases"):
            self.say(201, self.server.write(f"{self.path.split('?')[0]}/{body['metadata']['name']}", body))
        else:
            self.other()

    def do_PATCH(self) -> None:
        body = self.body()
        if "/leases/" in self.path:
            self.say(200, self.server.write(self.path.split("?")[0], body))
        else:
            self.other()

    def other(self) -> None:
        self.server.others.append(self.path)
        self.say(200, {"metadata": {}})

    def body(self) -> JSON:
        found: JSON = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return found

    def say(self, status: int, document: JSON) -> None:
        payload = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        """Not on the tests' output."""


@pytest.fixture
def leases() -> Iterator[Leases]:
    with Leases() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def kubeconfig(leases: Leases, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{leases.server_port}"}}],
        "users": [{"name": "u", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }))
    return path


def options(kubeconfig: Path, lease: tuple[str, str] | None) -> Options:
    return Options(config=OperatorConfig(), namespaces=("team-a",), kubeconfig=kubeconfig, metrics_port=0,
                   health_port=0, lease=lease)


async def test_a_blocked_event_loop_keeps_the_lease(
    kubeconfig: Path, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = asyncio.Event()
    renewed: list[bool] = []

    async def work(_: Operator) -> None:
        renewed.append(leases.renewed(3))  # no other task of the loop runs meanwhile
        stop.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Operator, "run", work)
    await run(options(kubeconfig, ("team-a", "enginewright")), stop)
    assert renewed == [True]
    (lease,) = leases.written.values()
    assert lease["spec"]["holderIdentity"] == "", "released when it stopped"


async def test_an_operator_that_names_no_lease_has_one_all_the_same(
    kubeconfig: Path, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = asyncio.Event()
    held: list[tuple[str, int, bool]] = []

    async def work(_: Operator) -> None:
        held.extend((path, lease["spec"]["leaseDurationSeconds"], bool(lease["spec"]["holderIdentity"]))
                    for path, lease in leases.written.items())
        stop.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Operator, "run", work)
    await run(options(kubeconfig, None), stop)
    assert held == [(LEASE.path("team-a", "enginewright"), 15, True)]


def test_the_chart_names_a_lease_for_one_operator_as_for_several() -> None:
    assert "--leader-lease=" in GOLDEN.read_text()
    assert "replicas: 1" in GOLDEN.read_text()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_nothing_is_sent_after_the_last_renewal_has_run_out(kubeconfig: Path, leases: Leases) -> None:
    from enginewright.clients.credentials import load_configuration
    from enginewright.clients.errors import NotLeadingError
    from enginewright.reconcile.leadership import Fence, Leadership, Terms

    clock = Clock()
    fence = Fence(clock)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "m"}}
    path = str(kubeconfig)
    async with (
        KubeClient(await load_configuration(path), before_write=fence.check) as kube,
        KubeClient(await load_configuration(path)) as own,
    ):
        leadership = Leadership(own, "team-a", "enginewright", "me", fence=fence, terms=Terms(), clock=clock)
        with pytest.raises(NotLeadingError):
            await kube.apply(service, namespace="team-a")
        await leadership.win()
        clock.now += Terms().renew_deadline - 0.1
        await kube.apply(service, namespace="team-a")
        # As after SIGSTOP: the clock has moved on, and the thread that renews has not run yet.
        clock.now += 0.1
        for write in (kube.apply(service, namespace="team-a"), kube.create(service, namespace="team-a"),
                      kube.patch(LEASE, "team-a", "of-a-build", {"spec": {}})):
            with pytest.raises(NotLeadingError):
                await write
        assert (await kube.get(LEASE, "team-a", "enginewright"))["spec"]["holderIdentity"] == "me", "reading is allowed"
    assert len(leases.others) == 1
    assert list(leases.written) == [LEASE.path("team-a", "enginewright")]


def test_every_write_that_routes_traffic_is_bound_to_what_was_seen() -> None:
    """Through a rollout and back: the first Service is bound to there being none, each later one to a version."""
    cluster, bound = Cluster(), []
    for uri in ("pvc://models/one", "pvc://models/two", "pvc://models/one"):
        cluster.edit(source={"uri": uri})
        for _ in range(60):
            plan = cluster.move(5)
            bound += [(action.uid, action.version) for action in plan.actions
                      if isinstance(action, Apply) and action.manifest["kind"] == "Service"]
    assert len(bound) >= 1
    assert all(version for _, version in bound)
    assert bound[0][0] == ""
    assert all(uid for uid, _ in bound[1:])
