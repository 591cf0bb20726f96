"""Every manifest, and the pods that come of it, in a real apiserver that enforces the standard ``restricted``."""

from __future__ import annotations

import re
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.core import labels
from enginewright.core.config import Images, OperatorConfig
from support.children import Children, children_of
from support.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[2]
JSON = dict[str, Any]
H100 = "NVIDIA-H100-80GB-HBM3"
BASE: JSON = {"source": {"uri": "pvc://models/a"}}
OBJECTS: dict[str, JSON] = {
    "cpu": {**BASE, "placement": {"accelerator": "cpu"}, "autoscaling": {"maxReplicas": 3},
            "engine": {"calibration": {"uri": "pvc://data/c.npz"}, "resources": {"limits": {"memory": "64Mi"}}}},
    "none": {**BASE, "placement": {"accelerator": "cpu"}, "autoscaling": {"minReplicas": 0, "maxReplicas": 3}},
    "gpus": {**BASE, "engine": {"queueName": "gpu", "podTemplate": {
        "metadata": {"labels": {"kueue.x-k8s.io/priority-class": "nightly"},
                     "annotations": {"sidecar.istio.io/inject": "false"}},
        "spec": {
            "priorityClassName": "system-cluster-critical",
            "schedulerName": "other",
            "imagePullSecrets": [{"name": "mine"}],
            "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["hub.example"]}],
            "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"team": "search"}}}]}},
            "volumes": [{"name": "ca", "configMap": {"name": "company-ca"}}],
            "containers": [{"name": "build", "env": [{"name": "SSL_CERT_FILE", "value": "/ca/ca.crt"}],
                            "volumeMounts": [{"name": "ca", "mountPath": "/ca"}]}]}}},
             "rollout": {"strategy": "BlueGreen"},
             "placement": {"gpu": {"product": H100, "count": 2},
                           "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute",
                                            "tolerationSeconds": 60}]}},
    "slice": {**BASE, "rollout": {"strategy": "Recreate"}, "store": {"uri": "pvc://engines/team/a"},
              "placement": {"gpu": {"product": H100}, "mig": {"profile": "1g.10gb+me", "strategy": "mixed"}}},
    "claim": {**BASE, "placement": {"gpu": {"product": H100}, "mig": {"profile": "auto", "dra": {}}}},
    "steps": {**BASE, "placement": {"accelerator": "cpu"}, "interface": {
        "pythonSteps": {"postprocess": "steps.py:labels"},
        "outputs": [{"name": "label", "dtype": "string", "shape": ["batch", 1]}]}},
    "watched": {"source": {**BASE["source"], "signature": {"configMapKeyRef": {"name": "keys", "key": "models.pub"}}},
                "placement": {"accelerator": "cpu"}, "quality": {}},
    "sealed": {"source": {**BASE["source"], "signature": {
        "method": "certificate", "path": "s/a.sig", "secretKeyRef": {"name": "k", "key": "c.pem"}}},
               "placement": {"gpu": {"product": H100}}, "quality": {"resources": {"limits": {"memory": "8Gi"}}}},
    "additions": {**BASE, "placement": {"accelerator": "cpu"}, "serving": {"podTemplate": {
        "metadata": {"labels": {"team": "search"}, "annotations": {"example.com/note": "hello"}},
        "spec": {
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"team": "search"}}}]}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                                           "labelSelector": {"matchLabels": {"team": "search"}}}],
            "priorityClassName": "system-cluster-critical",
            "volumes": [{"name": "logs", "emptyDir": {}}],
            "containers": [
                {"name": "server", "env": [{"name": "TZ", "value": "UTC"}],
                 "volumeMounts": [{"name": "logs", "mountPath": "/logs"}]},
                {"name": "shipper", "image": "example/shipper:1", "ports": [{"containerPort": 9000}]}]}}}},
}
# A fleet has no pods of its own, only objects with one of its classes.
OBJECTS |= {f"examples/{path.name}": spec for path in sorted((ROOT / "examples").glob("*.yaml"))
            if "classes" not in (spec := yaml.safe_load(path.read_text())["spec"])["placement"]}
CONFIG = OperatorConfig(
    images=Images(server_vllm="example/vllm:1"),
    runtime_class_name="nvidia", image_pull_secrets=("registry",), job_labels={"cost-centre": "42"},
    job_annotations={"example.com/note": "hello"}, job_env={"HTTPS_PROXY": "http://proxy.example:3128"},
)


@pytest.fixture(scope="module")
def restricted(control_plane: Path) -> Iterator[Kubectl]:
    kubectl = Kubectl(control_plane, f"restricted-{uuid.uuid4().hex[:8]}")
    levels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Namespace",
                                        "metadata": {"name": kubectl.namespace, "labels": levels}})
    kubectl("create", "-f", "-", stdin={"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "nvidia",
                                        "metadata": {"name": "nvidia"}})
    kubectl("wait", "serviceaccount/default", "--for=create", "--timeout=120s")
    try:
        yield kubectl
    finally:
        kubectl("delete", "runtimeclass", "nvidia")
        kubectl("delete", "namespace", kubectl.namespace, "--wait=false")


def of(kind: str, kubectl: Kubectl) -> Children:
    return children_of("m", OBJECTS[kind], CONFIG, namespace=kubectl.namespace)


@pytest.mark.parametrize("kind", OBJECTS)
def test_children_are_admitted_without_a_word(restricted: Kubectl, kind: str) -> None:
    assert restricted.complaints(of(kind, restricted).all()) == {}


@pytest.mark.parametrize("kind", OBJECTS)
def test_their_pods_are_admitted_under_the_restricted_standard(restricted: Kubectl, kind: str) -> None:
    pods = {}
    for child, manifest in of(kind, restricted).all().items():
        template = manifest.get("spec", {}).get("template")
        if template is None:
            continue
        if kind == "additions":  # a class that only the system's own namespace may use
            template["spec"].pop("priorityClassName", None)
        pods[child] = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "generateName": "m-"},
                       "spec": template["spec"]}
    assert restricted.complaints(pods) == {}


def test_the_standard_is_really_enforced(restricted: Kubectl) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "free"},
           "spec": {"containers": [{"name": "a", "image": "a"}]}}
    good = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "good"}}
    said = restricted.complaints({"before": good, "pod": pod, "behind": good})
    assert list(said) == ["pod"]
    assert 'violates PodSecurity "restricted' in said["pod"]


def test_applying_again_changes_nothing_and_leaves_replicas_to_the_scaler(restricted: Kubectl) -> None:
    # Of a name of its own: what is made here stays, and the other tests of this namespace create theirs on trial.
    owner = {"apiVersion": labels.API_VERSION, "kind": labels.KIND, "metadata": {"name": "applied"},
             "spec": OBJECTS["cpu"]}
    restricted("create", "-f", "-", stdin=owner)  # else the garbage collector takes its child
    uid = restricted("get", "om", "applied", "-o", "jsonpath={.metadata.uid}")
    children = children_of("applied", OBJECTS["cpu"], CONFIG, namespace=restricted.namespace, uid=uid)
    deployment = children.all()["deployment"]
    apply = ("apply", "--server-side", "--field-manager=enginewright", "--validate=strict", "-f", "-")
    restricted(*apply, stdin=deployment)
    name = deployment["metadata"]["name"]
    restricted("scale", f"deployment/{name}", "--replicas=5")
    generation = restricted("get", "deployment", name, "-o", "jsonpath={.metadata.generation}")
    restricted(*apply, stdin=deployment)
    found = restricted("get", "deployment", name, "-o", "jsonpath={.metadata.generation} {.spec.replicas}")
    assert found == f"{generation} 5"


def shown() -> list[tuple[str, JSON]]:
    """What pages have users apply with a command, each with the name of its page."""
    found = []
    for page in sorted((ROOT / "docs" / "how-to").glob("*.md")):
        for text in re.findall(r"kubectl apply -f - <<'EOT'\n(.*?)^ *EOT$", page.read_text(), re.MULTILINE | re.DOTALL):
            found += [(page.name, body) for body in yaml.safe_load_all(textwrap.dedent(text))]
    return found


def test_what_pages_have_users_apply_is_admitted_under_the_restricted_standard(restricted: Kubectl) -> None:
    assert {page for page, _ in shown()} == {"fill-a-claim.md", "first-model.md"}
    assert [(page, text) for page, body in shown() if (text := restricted.admits(body))] == []
