"""The operator's own credentials in other hands: the apiserver holds them to what is the operator's."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.resources import OPTIMISED_MODEL
from support.apiserver import Models, eventually, model
from support.children import children_of
from support.fake_kubelet import FakeKubelet
from support.installed import ACCOUNT, SYSTEM, install
from support.kubectl import Kubectl
from support.operators import embedded

JSON = dict[str, Any]
OURS = {"app.kubernetes.io/managed-by": "enginewright"}
KEY = "enginewright-engine-signing"


@pytest.fixture
async def operator(control_plane: Path, namespace: str, tmp_path: Path) -> Kubectl:
    """What has the operator's credentials, once the policy is in force, and may write Secrets and pods besides."""
    file = install(control_plane, {"watchNamespaces": [namespace], "replicas": 2}, tmp_path)
    admin = Kubectl(control_plane, namespace)
    admin("create", "role", "more", "--verb=create,patch,update,get,delete", "--resource=secrets,pods")
    admin("create", "role", "read", "--verb=get", "--resource=configmaps,deployments.apps,leases,services")
    for role in ("more", "read"):
        admin("create", "rolebinding", role, f"--role={role}", f"--serviceaccount={SYSTEM}:{ACCOUNT}")
    admin("wait", "serviceaccount/default", "--for=create", "--timeout=60s")
    kubectl = Kubectl(file, namespace)

    async def in_force() -> bool:
        """Those that judge learn of a policy a moment after it is there."""
        return "ValidatingAdmissionPolicy" in kubectl.admits(item("v1", "ConfigMap", "probe"))

    if admin("get", "validatingadmissionpolicies", "-o", "name"):
        await eventually(in_force)
    return kubectl


def item(api_version: str, kind: str, name: str, labels: JSON | None = None, **fields: Any) -> JSON:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "labels": labels or {}}, **fields}


def refused(done: Any) -> str:
    """What the policy says."""
    assert done.returncode != 0, done.stdout
    assert "ValidatingAdmissionPolicy" in done.stderr, done.stderr
    return str(done.stderr)


def deployment(namespace: str) -> JSON:
    made: JSON = children_of("m", {"source": {"uri": "pvc://models/a"}, "placement": {"accelerator": "cpu"}},
                             namespace=namespace).all()["deployment"]
    made["metadata"].pop("ownerReferences")
    return made


async def test_a_models_whole_life_passes(operator: Kubectl, namespace: str, models: Models,
                                          kubelet: FakeKubelet) -> None:
    """From its first Job to another revision, more replicas and its end, with an activator beside."""
    async with embedded(operator.kubeconfig, namespace) as running:
        await models.create(model(autoscaling={"minReplicas": 0, "maxReplicas": 2}))
        await models.create(model("second", replicas=1, rollout={"strategy": "Recreate"}))
        await models.wait("Ready", "True")
        await models.wait("Ready", "True", name="second")
        await models.patch({"spec": {"engine": {"maxBatchSize": 4}}}, name="second")
        await models.served("second")
        await models.patch({"spec": {"replicas": 2}}, name="second")

        async def scaled() -> bool:
            return bool((await models.get("second"))["status"]["replicas"] == 2)

        await eventually(scaled)
        for name in ("minilm", "second"):
            await models.delete(name)
            await models.gone(OPTIMISED_MODEL, name)
        calls = running.metrics.api_seconds.collect()
        codes = {(sample.labels["verb"], sample.labels["resource"], sample.labels["code"])
                 for metric in calls for sample in metric.samples}
    assert not [call for call in codes if call[2] in ("403", "422")]
    assert {verb for verb, _, code in codes if code == "200"} >= {"apply", "scale", "delete"}


def test_what_somebody_else_made_is_out_of_reach(operator: Kubectl, control_plane: Path, namespace: str) -> None:
    admin = Kubectl(control_plane, namespace)
    workload = deployment(namespace)
    workload["metadata"] |= {"name": "theirs", "labels": {}}
    workload["spec"]["selector"] = {"matchLabels": {"app": "theirs"}}
    workload["spec"]["template"]["metadata"]["labels"] = {"app": "theirs"}
    pod = item("v1", "Pod", "theirs", spec={"containers": [{"name": "a", "image": "a"}]})
    for body in (item("v1", "ConfigMap", "theirs"), item("coordination.k8s.io/v1", "Lease", "theirs"), workload, pod,
                 item("v1", "Service", "theirs", spec={"ports": [{"port": 80}]})):
        admin("create", "-f", "-", stdin=body)
    for kind in ("configmap", "lease", "deployment", "pod", "service"):
        assert "managed-by" in refused(operator.run("delete", kind, "theirs", "--wait=false"))
        relabelled = operator.run("label", kind, "theirs", "app.kubernetes.io/managed-by=enginewright")
        assert "managed-by" in refused(relabelled)
    assert "scale only Deployments" in refused(operator.run("scale", "deployment", "theirs", "--replicas=0"))
    admin("create", "-f", "-", stdin=model("theirs"))
    refused(operator.run("delete", "optimisedmodel", "theirs", "--wait=false"))
    refused(operator.run("annotate", "optimisedmodel", "theirs", "enginewright.io/promote=x"))


def test_nothing_is_made_without_the_label_nor_loses_it(operator: Kubectl, namespace: str) -> None:
    bare = deployment(namespace)
    del bare["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    for body in (bare, item("v1", "ConfigMap", "a"), item("coordination.k8s.io/v1", "Lease", "a"),
                 item("v1", "Service", "a", {"app.kubernetes.io/managed-by": "Helm"}, spec={"ports": [{"port": 80}]})):
        assert "managed-by" in refused(operator.run("create", "-f", "-", stdin=body))
    operator("create", "-f", "-", stdin=item("v1", "ConfigMap", "ours", OURS))
    assert "managed-by" in refused(operator.run("label", "configmap", "ours", "app.kubernetes.io/managed-by-"))
    operator("delete", "configmap", "ours")


def test_of_secrets_it_makes_the_signing_key_alone(operator: Kubectl, control_plane: Path, namespace: str) -> None:
    data = {"stringData": {"key": "x"}}
    for body in (item("v1", "Secret", "other", OURS, type="Opaque", **data),
                 item("v1", "Secret", KEY, OURS, type="example.com/other", **data)):
        assert "do nothing else to Secrets" in refused(operator.run("create", "-f", "-", stdin=body))
    operator("create", "-f", "-", stdin=item("v1", "Secret", KEY, type="Opaque", **data))
    for verb in (("label", "secret", KEY, "a=b"), ("delete", "secret", KEY)):
        assert "do nothing else to Secrets" in refused(operator.run(*verb))
    Kubectl(control_plane, namespace)("delete", "secret", KEY)


PODS: dict[str, JSON] = {
    "hostPath": {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]},
    "nfs": {"volumes": [{"name": "x", "nfs": {"server": "a", "path": "/"}}]},
    "csi": {"volumes": [{"name": "x", "csi": {"driver": "hostpath.csi.k8s.io"}}]},
    "token": {"volumes": [{"name": "x", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
    "network": {"hostNetwork": True}, "processes": {"hostPID": True}, "memory": {"hostIPC": True},
    "automount": {"automountServiceAccountToken": True}, "default": {"automountServiceAccountToken": None},
}
CONTAINERS: dict[str, JSON] = {
    "privileged": {"securityContext": {"privileged": True}}, "escalation": {"securityContext": {}},
    "port": {"ports": [{"containerPort": 8000, "hostPort": 8000}]},
}


def test_its_pods_reach_no_node_and_no_token(operator: Kubectl, namespace: str) -> None:
    assert operator.admits(deployment(namespace)) == ""
    job = children_of("m", {"source": {"uri": "pvc://models/a"}}, namespace=namespace).all()["build_job"]
    job["metadata"].pop("ownerReferences")
    assert operator.admits(job) == ""
    for good in (deployment(namespace), job):
        for change in PODS.values():
            bad = copy.deepcopy(good)
            pod = bad["spec"]["template"]["spec"]
            volumes = [*pod["volumes"], *change.get("volumes", [])]
            bad["spec"]["template"]["spec"] = {**pod, **change, "volumes": volumes}
            assert "that the operator makes" in operator.admits(bad), change
        for change in CONTAINERS.values():
            bad = copy.deepcopy(good)
            bad["spec"]["template"]["spec"]["containers"][0] |= change
            assert "that the operator makes" in operator.admits(bad), change


def test_which_of_several_operators_works_is_said_in_its_own_namespace(operator: Kubectl) -> None:
    own = Kubectl(operator.kubeconfig, SYSTEM)
    lease = item("coordination.k8s.io/v1", "Lease", ACCOUNT, spec={"holderIdentity": "a"})
    if own.run("get", "lease", ACCOUNT).returncode:
        own("create", "-f", "-", stdin=lease)
    own("patch", "lease", ACCOUNT, "--type=merge", "--patch", '{"spec":{"holderIdentity":"b"}}')
    refused(own.run("create", "-f", "-", stdin={**lease, "metadata": {"name": "another"}}))


def test_others_are_held_to_nothing(operator: Kubectl, control_plane: Path, namespace: str) -> None:
    assert Kubectl(control_plane, namespace).admits(item("v1", "ConfigMap", "mine")) == ""
