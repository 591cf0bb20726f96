"""The operator's own credentials in other hands: the apiserver holds them to what is the operator's."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.resources import OPTIMISED_MODEL
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests import Owner, gc_job
from enginewright.core.manifests.fleet import fleet_service
from enginewright.core.manifests.service import mirror_service, revision_service
from support.apiserver import Models, eventually, model
from support.children import children_of
from support.fake_kubelet import FakeKubelet
from support.installed import ACCOUNT, SYSTEM, install
from support.kubectl import Kubectl
from support.operators import embedded

JSON = dict[str, Any]
OURS = {"app.kubernetes.io/managed-by": "enginewright"}
KEYS = ("enginewright-engine-signing", "enginewright-capture-signing")
KEY = KEYS[0]
MODEL = "enginewright.io/model"


# Rights besides, so that what is refused is refused by the policy: by name, verbs and resources by their group.
MORE: dict[str, tuple[list[str], dict[str, list[str]]]] = {
    "more": (["create", "patch", "update", "get", "delete"], {"": ["secrets", "pods"]}),
    "read": (["get"], {"": ["configmaps", "services"], "apps": ["deployments"], "coordination.k8s.io": ["leases"]}),
    "all-at-once": (["deletecollection"], {"": ["configmaps"], "apps": ["deployments"]}),
}


@pytest.fixture
async def operator(control_plane: Path, namespace: str, tmp_path: Path) -> Kubectl:
    """What has the operator's credentials, once the policy is in force, and may write Secrets and pods besides."""
    file = install(control_plane, {"watchNamespaces": [namespace], "replicas": 2}, tmp_path)
    admin = Kubectl(control_plane, namespace)
    admin.apply([body for name, rights in MORE.items() for body in granted(name, rights)])
    admin("wait", "serviceaccount/default", "--for=create", "--timeout=120s")
    kubectl = Kubectl(file, namespace)
    await in_force(kubectl, admin)
    return kubectl


def granted(name: str, rights: tuple[list[str], dict[str, list[str]]]) -> list[JSON]:
    """A Role, and the operator's account bound to it."""
    verbs, resources = rights
    rules = [{"apiGroups": [group], "resources": names, "verbs": verbs} for group, names in resources.items()]
    group = "rbac.authorization.k8s.io"
    return [item(f"{group}/v1", "Role", name, rules=rules),
            item(f"{group}/v1", "RoleBinding", name, roleRef={"apiGroup": group, "kind": "Role", "name": name},
                 subjects=[{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}])]


async def in_force(operator: Kubectl, admin: Kubectl) -> None:
    """Waits until the apiserver enforces the policy: it learns of a new policy a moment after the policy is stored.

    A server without the policy is not waited for.
    """
    async def enforced() -> bool:
        return "ValidatingAdmissionPolicy" in operator.admits(item("v1", "ConfigMap", "probe"))

    if admin("get", "validatingadmissionpolicies", "-o", "name"):
        await eventually(enforced)


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
    for kind in ("configmaps", "deployments.apps"):
        group = "/apis/apps/v1" if "." in kind else "/api/v1"
        path = f"{group}/namespaces/{namespace}/{kind.partition('.')[0]}?fieldSelector=metadata.name=theirs"
        assert "managed-by" in refused(operator.run("delete", "--raw", path))
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


def test_of_secrets_it_makes_the_signing_keys_alone(operator: Kubectl, control_plane: Path, namespace: str) -> None:
    data = {"stringData": {"key": "x"}}
    for body in (item("v1", "Secret", "other", OURS, type="Opaque", **data),
                 item("v1", "Secret", KEY, OURS, type="example.com/other", **data)):
        assert "do nothing else to Secrets" in refused(operator.run("create", "-f", "-", stdin=body))
    for key in KEYS:
        operator("create", "-f", "-", stdin=item("v1", "Secret", key, type="Opaque", **data))
        for verb in (("label", "secret", key, "a=b"), ("delete", "secret", key)):
            assert "do nothing else to Secrets" in refused(operator.run(*verb))
        Kubectl(control_plane, namespace)("delete", "secret", key)


PODS: dict[str, JSON] = {
    "hostPath": {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]},
    "nfs": {"volumes": [{"name": "x", "nfs": {"server": "a", "path": "/"}}]},
    "csi": {"volumes": [{"name": "x", "csi": {"driver": "hostpath.csi.k8s.io"}}]},
    "token": {"volumes": [{"name": "x", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
    "authority": {"volumes": [{"name": "x", "projected": {"sources": [
        {"clusterTrustBundle": {"name": "a", "path": "t"}}]}}]},
    "network": {"hostNetwork": True}, "processes": {"hostPID": True}, "memory": {"hostIPC": True},
    "automount": {"automountServiceAccountToken": True}, "default": {"automountServiceAccountToken": None},
    "node": {"nodeName": "control-plane"},
    "kernel": {"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}},
    "windows": {"securityContext": {"windowsOptions": {"hostProcess": True}}, "hostNetwork": True},
    "apparmor": {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
    "selinux": {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
}
CONTAINERS: dict[str, JSON] = {
    "escalation": {"securityContext": {}},
    "port": {"ports": [{"containerPort": 8000, "hostPort": 8000}]},
    "probe": {"livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}},
    "hook": {"lifecycle": {"postStart": {"httpGet": {"host": "169.254.169.254", "port": 80}}}},
}
SECURITY: dict[str, JSON] = {
    "privileged": {"privileged": True, "allowPrivilegeEscalation": True},
    "escalation": {"allowPrivilegeEscalation": True},
    "module": {"capabilities": {"drop": ["ALL"], "add": ["SYS_MODULE"]}}, "kept": {"capabilities": {"drop": ["CHOWN"]}},
    "root": {"runAsNonRoot": False}, "user 0": {"runAsUser": 0}, "calls": {"seccompProfile": {"type": "Unconfined"}},
    "apparmor": {"appArmorProfile": {"type": "Unconfined"}}, "selinux": {"seLinuxOptions": {"type": "spc_t"}},
}


def job_of(namespace: str) -> JSON:
    job: JSON = children_of("m", {"source": {"uri": "pvc://models/a"}}, namespace=namespace).all()["build_job"]
    job["metadata"].pop("ownerReferences")
    return job


def test_its_pods_reach_no_node_and_no_token(operator: Kubectl, namespace: str) -> None:
    for good in (deployment(namespace), job_of(namespace)):
        assert operator.admits(good) == ""
        for change in PODS.values():
            bad = copy.deepcopy(good)
            pod = bad["spec"]["template"]["spec"]
            volumes = [*pod["volumes"], *change.get("volumes", [])]
            security = {**pod["securityContext"], **change.get("securityContext", {})}
            bad["spec"]["template"]["spec"] = {**pod, **change, "volumes": volumes, "securityContext": security}
            assert "that the operator makes" in operator.admits(bad), change
        for place in ("containers", "initContainers"):
            for change in (*CONTAINERS.values(), *({"securityContext": security} for security in SECURITY.values())):
                bad = copy.deepcopy(good)
                added = {**copy.deepcopy(good["spec"]["template"]["spec"]["containers"][0]), "name": "added"}
                for probe in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
                    added.pop(probe, None)
                if change != CONTAINERS["escalation"] and "securityContext" in change:
                    change = {"securityContext": {**added["securityContext"], **change["securityContext"]}}
                always = {"restartPolicy": "Always"} if place == "initContainers" else {}
                pod = bad["spec"]["template"]["spec"]
                pod[place] = [*pod.get(place, []), {**added, **always, **change}]
                assert "that the operator makes" in operator.admits(bad), (place, change)


def test_it_makes_and_changes_no_pods(operator: Kubectl, control_plane: Path, namespace: str) -> None:
    template = deployment(namespace)["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": "ours", "labels": OURS}}
    assert "neither make nor change" in refused(operator.run("create", "-f", "-", stdin=pod))
    pod["spec"] = {"containers": [{"name": "a", "image": "a"}]}
    Kubectl(control_plane, namespace)("create", "-f", "-", stdin=pod)
    assert "neither make nor change" in refused(operator.run("label", "pod", "ours", "a=b"))
    operator("delete", "pod", "ours", "--wait=false")


def service(**fields: Any) -> JSON:
    return item("v1", "Service", "s", OURS, spec={"ports": [{"port": 80}], "selector": {MODEL: "m"}, **fields})


def test_its_services_take_over_no_address_and_no_others_pods(operator: Kubectl) -> None:
    assert operator.admits(service()) == ""
    assert operator.admits(service(clusterIP="None")) == ""
    for taken in ({"externalIPs": ["10.0.0.1"]}, {"type": "LoadBalancer"}, {"type": "NodePort"},
                  {"type": "ExternalName", "externalName": "kubernetes.default.svc"}):
        assert "must have the type ClusterIP" in operator.admits(service(**taken)), taken
    for selector in ({"app": "theirs"}, {}):
        assert "must select its pods" in operator.admits(service(selector=selector))


def test_what_selects_pods_selects_those_of_models(operator: Kubectl, namespace: str) -> None:
    theirs = {"matchLabels": {"app": "theirs"}}
    workload, job = deployment(namespace), job_of(namespace)
    workload["spec"]["selector"] = theirs
    workload["spec"]["template"]["metadata"]["labels"] |= {"app": "theirs"}
    job["spec"] |= {"manualSelector": True, "selector": theirs}
    job["spec"]["template"]["metadata"]["labels"] |= {"app": "theirs"}
    budget = item("policy/v1", "PodDisruptionBudget", "b", OURS, spec={"maxUnavailable": 0, "selector": theirs})
    everything = item("policy/v1", "PodDisruptionBudget", "b", OURS, spec={"maxUnavailable": 0, "selector": {}})
    for body in (workload, job, budget, everything):
        assert "must select its pods" in operator.admits(body), body["kind"]


@pytest.mark.parametrize("platform", ["kube-system", "openshift-config"])
async def test_it_writes_nothing_in_namespaces_of_the_platform(control_plane: Path, tmp_path: Path,
                                                               platform: str) -> None:
    """With rights in the whole cluster a pod there could mount the Secrets of the cluster's own parts."""
    operator = Kubectl(install(control_plane, {}, tmp_path), platform)
    admin = Kubectl(control_plane, platform)
    if admin.run("get", "namespace", platform).returncode:
        admin("create", "namespace", platform)
    await in_force(operator, admin)
    for body in (deployment(platform), job_of(platform), item("v1", "ConfigMap", "c", OURS), service(),
                 item("v1", "Secret", KEY, OURS, type="Opaque")):
        assert "namespaces of the platform" in operator.admits(body), body["kind"]


EVERY: tuple[JSON, ...] = (
    {"placement": {"accelerator": "cpu"}, "autoscaling": {"minReplicas": 0, "maxReplicas": 2}},
    {"placement": {"accelerator": "cpu"}, "quality": {},
     "serving": {"podTemplate": {"spec": {"containers": [{"name": "mine", "image": "a"}]}}}},
    {"placement": {"accelerator": "cpu"}, "store": {"uri": "s3://engines/a", "secretRef": {"name": "s3"}}},
)


@pytest.mark.parametrize("openshift", [False, True])
def test_all_that_it_makes_passes(operator: Kubectl, namespace: str, openshift: bool) -> None:
    config = OperatorConfig(openshift=openshift)
    owner = Owner(name="m", namespace=namespace, uid="u")
    made = [child for raw in EVERY for child in
            children_of("m", {"source": {"uri": "pvc://models/a"}, **raw}, config, namespace=namespace).all().values()]
    others = (gc_job(namespace, "pvc://engines", "uid", ("f" * 64,), config), fleet_service(owner),
              mirror_service(owner, "0" * 8), revision_service(owner, "0" * 8))
    for child in (*made, *others):
        child["metadata"].pop("ownerReferences", None)
    numbered = {f"{number}: {child['kind']} {child['metadata']['name']}": child
                for number, child in enumerate((*made, *others))}
    assert operator.complaints(numbered) == {}


def test_which_of_several_operators_works_is_said_in_its_own_namespace(operator: Kubectl) -> None:
    own = Kubectl(operator.kubeconfig, SYSTEM)
    lease = item("coordination.k8s.io/v1", "Lease", ACCOUNT, spec={"holderIdentity": "a"})
    if own.run("get", "lease", ACCOUNT).returncode:
        own("create", "-f", "-", stdin=lease)
    own("patch", "lease", ACCOUNT, "--type=merge", "--patch", '{"spec":{"holderIdentity":"b"}}')
    refused(own.run("create", "-f", "-", stdin={**lease, "metadata": {"name": "another"}}))


def test_others_are_held_to_nothing(operator: Kubectl, control_plane: Path, namespace: str) -> None:
    assert Kubectl(control_plane, namespace).admits(item("v1", "ConfigMap", "mine")) == ""
