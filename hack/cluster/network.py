"""The node's interface, the pods' network and their way out."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Iterable

from cluster.packages import system_program
from cluster.paths import ClusterPaths
from cluster.settings import NFT_TABLE, NODE_ADDRESS, NODE_INTERFACE, POD_CIDR, SERVICE_CIDR
from cluster.steps import ClusterError

KUBE_PROXY_TABLES = (("ip", "kube-proxy"), ("ip6", "kube-proxy"))


def cni_config(paths: ClusterPaths) -> str:
    """Each pod gets a veth pair of its own and a route to it (plug-in `ptp`).

    With a bridge, a pod's answer to another pod would go straight across and pass by the address translation of
    Services, unless bridged packets are made to pass the firewall: a setting of the whole machine.
    """
    return json.dumps(
        {
            "cniVersion": "0.4.0",
            "name": "enginewright",
            "plugins": [
                {
                    "type": "ptp",
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": POD_CIDR}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                        # Addresses given out are of no use after a restart of the machine.
                        "dataDir": str(paths.run / "cni-addresses"),
                    },
                }
            ],
        },
        indent=1,
    )


def nft_rules() -> str:
    """Pods reach the world under this machine's address. Adding and deleting first makes it right to repeat."""
    return (
        f"add table ip {NFT_TABLE}\n"
        f"delete table ip {NFT_TABLE}\n"
        f"table ip {NFT_TABLE} {{\n"
        "  chain postrouting {\n"
        "    type nat hook postrouting priority srcnat; policy accept;\n"
        f"    ip saddr {POD_CIDR} ip daddr != {{ {POD_CIDR}, {SERVICE_CIDR} }} masquerade\n"
        "  }\n"
        "}\n"
    )


def create() -> None:
    """Make the node's interface and the rules; nothing changes where they stand."""
    if not _interface_exists():
        # A bridge without ports is an interface that only carries an address; not every kernel has dummy devices.
        _ip("link", "add", NODE_INTERFACE, "type", "bridge")
    _ip("address", "replace", f"{NODE_ADDRESS}/32", "dev", NODE_INTERFACE)
    _ip("link", "set", NODE_INTERFACE, "up")
    _run("nft", "-f", "-", text=nft_rules())


def remove() -> None:
    """Take away what `create`, kube-proxy and the pods' network plug-in made."""
    if _interface_exists():
        _ip("link", "delete", NODE_INTERFACE)
    for interface in orphaned_veths(json.loads(_ip("-json", "-details", "address", "show"))):
        _ip("link", "delete", interface)
    existing = {
        (entry["table"]["family"], entry["table"]["name"])
        for entry in json.loads(_run("nft", "--json", "list", "tables"))["nftables"]
        if "table" in entry
    }
    for family, name in (("ip", NFT_TABLE), *KUBE_PROXY_TABLES):
        if (family, name) in existing:
            _run("nft", "delete", "table", family, name)


def gateway() -> str:
    """The pods' gateway: the first address of their range, which `host-local` gives to each host-side veth."""
    return str(next(ipaddress.ip_network(POD_CIDR).hosts()))


def orphaned_veths(interfaces: Iterable[dict[str, object]]) -> list[str]:
    """Names, out of `ip -json -details address`, of veths that carry the pods' gateway address."""
    found = []
    for interface in interfaces:
        link, addresses = interface.get("linkinfo"), interface.get("addr_info")
        if not isinstance(link, dict) or link.get("info_kind") != "veth" or not isinstance(addresses, list):
            continue
        if any(address.get("local") == gateway() for address in addresses):
            found.append(str(interface["ifname"]))
    return found


def conflicts(routes: Iterable[dict[str, object]]) -> list[str]:
    """Routes of this machine, out of `ip -json route`, into ranges that the cluster would use, other than its own."""
    ours = [ipaddress.ip_network(cidr) for cidr in (POD_CIDR, SERVICE_CIDR, f"{NODE_ADDRESS}/32")]
    found = []
    for route in routes:
        destination, device = str(route["dst"]), str(route.get("dev", ""))
        if destination == "default" or device == NODE_INTERFACE or device.startswith("veth"):
            continue
        network = ipaddress.ip_network(destination, strict=False)
        if any(network.overlaps(other) for other in ours):
            found.append(f"{destination} dev {device}")
    return found


def refuse_conflicts() -> None:
    """Raise where this machine already routes the cluster's addresses elsewhere."""
    found = conflicts(json.loads(_ip("-4", "-json", "route", "show") or "[]"))
    if found:
        raise ClusterError(
            f"this machine routes addresses that the cluster needs ({POD_CIDR}, {SERVICE_CIDR}, {NODE_ADDRESS}): "
            f"{', '.join(found)}; remove that network, or use CLUSTER=kind or CLUSTER=existing"
        )


def _interface_exists() -> bool:
    command = (system_program("ip"), "link", "show", NODE_INTERFACE)
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(program: str, *arguments: str, text: str | None = None) -> str:
    command = (str(system_program(program)), *arguments)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"{program} {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout
