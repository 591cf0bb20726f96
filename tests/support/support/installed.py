"""The chart's own ServiceAccount on a real apiserver, with all that the chart gives it and holds it to."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from cluster import binaries
from support.kubectl import Kubectl

CHART = Path(__file__).resolve().parents[3] / "charts" / "enginewright"
RELEASE, SYSTEM = "demo", "enginewright-system"
ACCOUNT = "demo-enginewright"
KINDS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy",
         "ValidatingAdmissionPolicyBinding", "NetworkPolicy")
CLUSTER_WIDE = ("clusterrolebinding", "clusterrole", "validatingadmissionpolicybinding", "validatingadmissionpolicy")
Object = dict[str, Any]


def rendered(values: Object) -> list[Object]:
    command = [str(binaries.build(binaries.HELM)), "template", RELEASE, str(CHART), "--namespace", SYSTEM,
               "--kube-version", "1.34.4", "--values", "-"]
    done = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, timeout=240,
                          check=True)
    return [found for found in yaml.load_all(done.stdout, yaml.CSafeLoader) if found]


def install(control_plane: Path, values: Object, folder: Path) -> Path:
    """Applies what the chart makes for the operator, but for the operator itself; the kubeconfig of its account. What
    another test has installed for the whole cluster goes first: a right that is left there would count here as well."""
    kubectl = Kubectl(control_plane, SYSTEM)
    kubectl("delete", ",".join(CLUSTER_WIDE), "--ignore-not-found", "--selector",
            f"app.kubernetes.io/instance={RELEASE}")
    wanted = [item for item in rendered(values) if item["kind"] in KINDS]
    # One kubectl for each namespace: it refuses objects of others than its own.
    places = {SYSTEM: [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}]}
    for item in wanted:
        places.setdefault(item["metadata"].get("namespace", SYSTEM), []).append(item)
    for namespace, items in places.items():
        Kubectl(control_plane, namespace).apply(items)
    config = yaml.safe_load(control_plane.read_text())
    config["users"][0]["user"] = {"token": kubectl("create", "token", ACCOUNT).strip()}
    file = folder / "operator.kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file
