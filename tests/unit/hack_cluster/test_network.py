"""The pods' network: what is configured, what is refused, what is found to be removed."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

import pytest

from cluster import network
from cluster.paths import local_cluster
from cluster.settings import API_SERVICE_ADDRESS, DNS_ADDRESS, NODE_ADDRESS, POD_CIDR, SERVICE_CIDR


def interface(name: str, kind: str | None, *addresses: str) -> dict[str, Any]:
    return {
        "ifname": name,
        "addr_info": [{"local": address} for address in addresses],
        **({"linkinfo": {"info_kind": kind}} if kind else {}),
    }


def test_only_veths_with_the_pods_gateway_are_ours() -> None:
    interfaces = [
        interface("lo", None, "127.0.0.1"),
        interface("veth1", "veth", "10.244.0.1"),
        interface("veth2", "veth", "172.17.0.1"),
        interface("veth3", "veth"),
        interface("bridge0", "bridge", "10.244.0.1"),
    ]
    assert network.orphaned_veths(interfaces) == ["veth1"]


@pytest.mark.parametrize(
    ("route", "refused"),
    [
        ({"dst": "default", "dev": "eth0"}, False),
        ({"dst": "192.168.0.0/24", "dev": "eth0"}, False),
        ({"dst": "10.0.0.0/8", "dev": "tun0"}, True),
        ({"dst": "10.244.0.0/16", "dev": "cni0"}, True),
        ({"dst": "10.96.1.2", "dev": "eth0"}, True),
        ({"dst": "10.245.0.1", "dev": "eth1"}, True),
        ({"dst": "10.244.0.7", "dev": "veth12ab"}, False),
        ({"dst": "10.245.0.1", "dev": "enginewright0"}, False),
    ],
)
def test_routes_into_the_clusters_ranges_are_refused_unless_its_own(route: dict[str, object], refused: bool) -> None:
    assert bool(network.conflicts([route])) is refused


def test_addresses_lie_in_their_ranges_and_the_ranges_apart() -> None:
    pods, services = ipaddress.ip_network(POD_CIDR), ipaddress.ip_network(SERVICE_CIDR)
    assert not pods.overlaps(services)
    assert ipaddress.ip_address(NODE_ADDRESS) not in pods
    assert {ipaddress.ip_address(address) in services for address in (DNS_ADDRESS, API_SERVICE_ADDRESS)} == {True}


def test_pods_addresses_are_forgotten_with_the_boot() -> None:
    [plugin] = json.loads(network.cni_config(local_cluster()))["plugins"]
    assert plugin["type"] == "ptp"
    assert plugin["ipam"]["dataDir"].startswith("/run/")


def test_rules_may_be_loaded_again_and_again() -> None:
    assert network.nft_rules().index("delete table ip enginewright") < network.nft_rules().index("masquerade")
    assert network.nft_rules().startswith("add table ip enginewright\n")
