"""Configuration of the node's programs."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cluster import dns, node
from cluster.paths import ClusterPaths, local_cluster
from cluster.settings import DNS_ADDRESS, NODE_ADDRESS, PAUSE_IMAGE

STARTED = datetime(2026, 11, 21, 10, 0, 30, 900_000, tzinfo=UTC)


def paths(directory: Path) -> ClusterPaths:
    return ClusterPaths(directory / "state", directory / "run", directory / "logs")


@pytest.mark.parametrize(
    ("status", "heartbeat", "ready"),
    [
        ("True", "2026-11-21T10:00:31Z", True),
        ("True", "2026-11-21T10:00:30Z", True),
        ("True", "2026-11-21T10:00:29Z", False),
        ("False", "2026-11-21T10:00:31Z", False),
        ("Unknown", "2026-11-21T10:00:31Z", False),
    ],
)
def test_a_node_is_ready_by_the_word_of_the_kubelet_that_runs(status: str, heartbeat: str, ready: bool) -> None:
    condition = {"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat}
    found: dict[str, Any] = {"status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, condition]}}
    assert node.is_ready(found, STARTED) is ready


def test_a_node_that_has_not_reported_is_not_ready() -> None:
    assert not node.is_ready({}, STARTED)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("nameserver 10.0.0.1\nnameserver 10.0.0.2\n", ["10.0.0.1", "10.0.0.2"]),
        ("nameserver 127.0.0.53\noptions edns0\n", []),
        ("nameserver ::1\nnameserver fe80::1%eth0\n", ["fe80::1"]),
        ("# nameserver 10.0.0.1\nsearch example.com\nnameserver\n", []),
        ("", []),
    ],
)
def test_name_servers_on_loopback_are_of_no_use_to_pods(text: str, servers: list[str]) -> None:
    assert node.upstream_resolvers(text) == servers


def test_dns_forwards_only_where_there_is_somebody_to_ask() -> None:
    assert "forward . 10.0.0.1 10.0.0.2\n" in dns.corefile(["10.0.0.1", "10.0.0.2"])
    assert "forward" not in dns.corefile([])


def test_the_dns_service_has_the_address_that_kubelet_gives_to_pods(tmp_path: Path) -> None:
    service = next(item for item in dns.objects([]) if item["kind"] == "Service")
    assert service["spec"]["clusterIP"] == DNS_ADDRESS
    assert json.loads(node.kubelet_config(paths(tmp_path)))["clusterDNS"] == [DNS_ADDRESS]


def test_a_kubelet_that_hears_of_a_pod_first_may_read_all_of_it_but_secrets() -> None:
    role, binding = node.access()
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert "secrets" not in {resource for rule in role["rules"] for resource in rule["resources"]}


def test_containerd_keeps_to_its_own_directories(tmp_path: Path) -> None:
    config = tomllib.loads(node.containerd_config(paths(tmp_path), tmp_path / "images"))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    places = [config["root"], config["state"], config["grpc"]["address"], cri["cni"]["conf_dir"]]
    places.append(config["plugins"]["io.containerd.internal.v1.opt"]["path"])
    assert all(place.startswith(f"{tmp_path}/") for place in places)
    assert cri["netns_mounts_under_state_dir"] is True
    assert cri["restrict_oom_score_adj"] is True
    assert cri["sandbox_image"] == PAUSE_IMAGE


def test_kubelet_asks_who_calls_and_keeps_to_its_own_directories(tmp_path: Path) -> None:
    config = json.loads(node.kubelet_config(paths(tmp_path)))
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["address"] == NODE_ADDRESS
    assert all(config[name].startswith(f"{tmp_path}/") for name in ("podLogsDir", "volumePluginDir", "resolvConf"))


def test_kube_proxy_leaves_connection_tracking_as_it_is(tmp_path: Path) -> None:
    config = json.loads(node.kube_proxy_config(paths(tmp_path)))
    assert config["mode"] == "nftables"
    assert set(config["conntrack"].values()) == {0, "0s"}


def test_sockets_fit_their_limit() -> None:
    assert len(str(local_cluster().containerd_socket)) < 107
