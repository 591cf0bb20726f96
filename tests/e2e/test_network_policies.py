"""The chart's NetworkPolicies with real traffic: every connection that the parts need is there, and no other.

Network namespaces stand for the pods, with the labels that the chart and the operator give them; a real engine enforces
the policies (:mod:`support.netns`). The node of the other end-to-end tests has no part in this: its network plug-in
enforces no policies."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from demo.shell import ROOT
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests import gc_job
from support.children import children_of
from support.installed import SYSTEM, rendered
from support.netns import Network, Place, network

Object = dict[str, Any]
TEAM, CLIENTS, MONITORING, ANOTHER, DNS, OUTSIDE = (
    "team-a", "clients", "monitoring", "team-b", "kube-system", "outside")
PORTS = (53, 80, 443, 6443, 8000, 8001, 8002, 8003, 8080, 8081)
SPEC = {"source": {"uri": "pvc://models/a"}, "placement": {"accelerator": "cpu"},
        "autoscaling": {"minReplicas": 0, "maxReplicas": 2}}
VALUES = {
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": MONITORING}}}],
        "models": {"enabled": True, "namespaces": [TEAM], "clientsFrom": [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": CLIENTS}}}]},
    },
}
ADDRESSES = {"apiserver": "192.0.2.1", "metadata": "169.254.169.254", "hub": "198.51.100.1"}


def pod(name: str, namespace: str, address: str, labels: dict[str, str], ports: list[Object]) -> Place:
    container = {"name": "a", "image": "a", "ports": ports}
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    return Place(name, address, {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": "node", "containers": [container]}, "status": status})


def of_template(name: str, namespace: str, address: str, workload: Object) -> Place:
    template = workload["spec"]["template"]
    # With the apiserver's default.
    ports = [{"protocol": "TCP", **port} for container in template["spec"]["containers"]
             for port in container.get("ports", ())]
    return pod(name, namespace, address, template["metadata"]["labels"], ports)


def all_places(chart: list[Object]) -> dict[str, Place]:
    children = children_of("m", SPEC, namespace=TEAM).all()
    (operator,) = (item for item in chart if item["kind"] == "Deployment")
    collector = gc_job(TEAM, "pvc://engines", "uid", ("f" * 64,), OperatorConfig())
    places = [
        of_template("operator", SYSTEM, "10.88.0.1", operator),
        of_template("resolve", TEAM, "10.88.0.2", children["resolve_job"]),
        of_template("build", TEAM, "10.88.0.3", children["build_job"]),
        of_template("gc", TEAM, "10.88.0.4", collector),
        of_template("replica", TEAM, "10.88.0.5", children["deployment"]),
        of_template("another replica", TEAM, "10.88.0.6", children["deployment"]),
        of_template("activator", TEAM, "10.88.0.7", children["activator"]),
        pod("neighbour", TEAM, "10.88.0.8", {"app": "theirs"}, []),
        pod("foreign", ANOTHER, "10.88.0.9", {"app": "theirs"}, []),
        # Labels alone must not open what is for the operator, which is known by its namespace as well.
        pod("impostor", ANOTHER, "10.88.0.10", operator["spec"]["template"]["metadata"]["labels"], []),
        pod("client", CLIENTS, "10.88.0.11", {"app": "client"}, []),
        pod("prometheus", MONITORING, "10.88.0.12", {"app": "prometheus"}, []),
        pod("dns", DNS, "10.88.0.13", {"k8s-app": "kube-dns"}, []),
        # What is no pod: without a pod for each address this version of the engine ends when it meets one.
        *(pod(name, OUTSIDE, address, {}, []) for name, address in ADDRESSES.items()),
    ]
    return {place.name: place for place in places}


REPLICAS, JOBS = ("replica", "another replica"), ("resolve", "build", "gc")
HELD = ("operator", *REPLICAS, "activator", *JOBS)  # pods that policies select
SELECTED_BY_NONE = ("neighbour", "foreign", "impostor", "client", "prometheus", "dns")
OPEN = (*SELECTED_BY_NONE, *ADDRESSES)


def allowed(source: str, target: str, port: int) -> bool:
    """What docs/architecture.md and docs/install.md say of who talks to whom."""
    return (_goes_out(source, target, port) if source in HELD else True) and (
        _comes_in(source, target, port) if target in HELD else True)


def _goes_out(source: str, target: str, port: int) -> bool:
    if port == 53:
        return True
    if source == "operator":
        return port in (443, 6443) or (target in (*REPLICAS, "activator") and port in (8000, 8002, 8003))
    if source == "activator":
        return target in REPLICAS and port in (8000, 8001)
    if source in REPLICAS:
        return target in REPLICAS and port == 8000
    return port == 443 and target != "metadata"


def _comes_in(source: str, target: str, port: int) -> bool:
    if target == "operator":
        return port == 8081 or (port == 8080 and source == "prometheus")
    if target == "activator":
        return (source == "client" and port in (8000, 8001)) or (source in ("operator", "prometheus") and port == 8002)
    if target in REPLICAS:
        return ((source in ("client", "activator", *REPLICAS) and port in (8000, 8001)) or
                (source == "operator" and port in (8000, 8002, 8003)) or
                (source == "prometheus" and port in (8002, 8003)))
    return False


@pytest.fixture(scope="module")
def places() -> dict[str, Place]:
    why_not = subprocess.run([ROOT / "hack/dev/can-run-node.sh"], capture_output=True, text=True, check=False)
    if why_not.returncode != 0:
        (pytest.fail if os.environ.get("ENGINEWRIGHT_REQUIRE_E2E") else pytest.skip)(why_not.stdout.strip())
    return all_places(rendered(VALUES))


@pytest.fixture(scope="module")
def traffic(places: dict[str, Place], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    policies = [item for item in rendered(VALUES) if item["kind"] == "NetworkPolicy"]
    namespaces = [{"apiVersion": "v1", "kind": "Namespace",
                   "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
                  for name in (SYSTEM, TEAM, CLIENTS, MONITORING, ANOTHER, DNS, OUTSIDE)]
    log = tmp_path_factory.mktemp("engine") / "log"
    with network(places.values(), [*namespaces, *policies], PORTS, log) as made:
        yield made


@pytest.mark.parametrize("source", [*HELD, *SELECTED_BY_NONE])
async def test_every_needed_connection_is_there_and_no_other(
    traffic: Network, places: dict[str, Place], source: str
) -> None:
    tried = [(target, port) for target in (*HELD, *OPEN) if target != source for port in PORTS]
    by_address = {(places[target].address, port): (target, port) for target, port in tried}
    wanted = [at for at, (target, port) in by_address.items() if allowed(source, target, port)]
    refused = [at for at, (target, port) in by_address.items() if not allowed(source, target, port)]
    last = (places["dns" if source != "dns" else "hub"].address, 53)
    through = await traffic.reached(places[source], wanted, refused, last)
    assert [by_address[at] for at in through] == [], "refused by the policies, yet connected"
    assert wanted, "a source that reaches nothing proves nothing"

