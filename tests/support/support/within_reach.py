"""What pods of a real node reach on this machine, and the Secrets for it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from support.bench import Bench


def node_address(bench: Bench) -> str:
    """Where pods reach this machine."""
    (node,) = bench.kube.json("get", "nodes")["items"]
    return str(next(entry["address"] for entry in node["status"]["addresses"] if entry["type"] == "InternalIP"))


def make_secret(bench: Bench, name: str, entries: Mapping[str, str], kind: str = "Opaque") -> None:
    bench.kube("apply", "-n", bench.namespace, "-f", "-", stdin=json.dumps(
        {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name}, "stringData": dict(entries)}))
