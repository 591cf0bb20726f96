"""``kubectl optimisedmodel report`` makes a pod with the rights of an administrator: a person who may write Deployments
alone has it made privileged, on the node's files, or for a Deployment that the operator never made."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from enginewright.clients.errors import NotFoundError
from enginewright.core.config import OperatorConfig, TrustedCA
from enginewright.core.manifests import deployment
from enginewright.core.manifests.common import container_security, pod_security
from enginewright.plugin.report import deployment_of, fetch, proven
from enginewright.plugin.report_pod import reader
from enginewright.plugin.wishes import WishError
from support.children import Children, children_of

JSON = dict[str, Any]
VOLUME: JSON = {"source": {"uri": "pvc://models/net"}, "placement": {"accelerator": "cpu"},
                "store": {"uri": "pvc://engines/team"}}
BUCKET: JSON = {**VOLUME, "store": {"uri": "s3://engines/team", "serviceAccountName": "engines",
                                    "secretRef": {"name": "bucket"}}}
DIGEST = "sha256:" + "d" * 64
CERTIFICATES = OperatorConfig(trusted_ca=TrustedCA(config_map="site-ca"))


def made(raw: JSON = VOLUME, config: OperatorConfig | None = None) -> tuple[JSON, JSON, Children]:
    """An object, the Deployment that the operator makes for it, and both with all that they came from."""
    children = children_of("net", raw)
    record = replace(children.record, outcome=replace(children.record.outcome, manifest_digest=DIGEST))
    owner = children.owner
    obj = {"metadata": {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid}}
    found = deployment(owner, children.spec, record, children.placement, config or children.config)
    return obj, copy.deepcopy(found), children


class Cluster:
    """The Deployments that the plugin may ask for by name."""

    def __init__(self, *deployments: JSON) -> None:
        self._deployments = {one["metadata"]["name"]: one for one in deployments}

    async def get(self, resource: object, namespace: str, name: str) -> JSON:
        if name not in self._deployments:
            raise NotFoundError(name)
        return self._deployments[name]

    async def create(self, *args: object, **kwargs: object) -> JSON:
        raise AssertionError("a pod was made")


def pod_of(found: JSON) -> JSON:
    return dict(found["spec"]["template"]["spec"])


def verify_of(found: JSON) -> JSON:
    return dict(pod_of(found)["initContainers"][0])


@pytest.mark.parametrize("raw", [VOLUME, BUCKET])
def test_the_pod_has_the_security_of_ours_whatever_the_deployment_says(raw: JSON) -> None:
    _, found, children = made(raw)
    honest = reader("net", found, "report.html")
    pod = found["spec"]["template"]["spec"]
    pod |= {"hostPID": True, "hostNetwork": True, "nodeName": "control-plane", "automountServiceAccountToken": True,
            "securityContext": {"runAsUser": 0, "runAsNonRoot": False, "sysctls": [{"name": "a", "value": "b"}]}}
    pod["volumes"] += [{"name": "node", "hostPath": {"path": "/"}}]
    verify = pod["initContainers"][0]
    verify |= {"securityContext": {"privileged": True}, "lifecycle": {"postStart": {"exec": {"command": ["id"]}}},
               "resources": {**verify["resources"], "claims": [{"name": "gpu"}]},
               "volumeDevices": [{"name": "node", "devicePath": "/dev/sda"}],
               "env": [*verify.get("env", ()), {"name": "LD_PRELOAD", "value": "/node/evil.so"}],
               "envFrom": [*verify.get("envFrom", ()), {"configMapRef": {"name": "other"}}]}
    verify["volumeMounts"] += [{"name": "node", "mountPath": "/node"}]
    assert reader("net", found, "report.html") == honest
    assert honest["spec"]["securityContext"] == pod_security(children.config)
    assert honest["spec"]["containers"][0]["securityContext"] == container_security()


def test_a_service_account_is_of_a_bucket_alone() -> None:
    assert reader("net", made(BUCKET)[1], "report.html")["spec"]["serviceAccountName"] == "engines"
    _, found, _ = made()
    found["spec"]["template"]["spec"]["serviceAccountName"] = "cluster-admin"
    assert "serviceAccountName" not in reader("net", found, "report.html")["spec"]


@pytest.mark.parametrize("openshift", [False, True])
def test_it_runs_as_the_replicas_do(openshift: bool) -> None:
    config = replace(made()[2].config, openshift=openshift)
    _, found, _ = made(config=config)
    assert reader("net", found, "report.html")["spec"]["securityContext"] == pod_security(config)


@pytest.mark.parametrize(("raw", "volume", "kind"), [(VOLUME, "engine-store", "claim"),
                                                     (BUCKET, "trusted-ca", "ConfigMap")])
@pytest.mark.parametrize("source", [{"hostPath": {"path": "/"}}, {"secret": {"secretName": "signing-keys"}},
                                    {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}])
def test_a_volume_of_another_kind_is_not_mounted(raw: JSON, volume: str, kind: str, source: JSON) -> None:
    _, found, _ = made(raw, CERTIFICATES)
    (place,) = (one for one in pod_of(found)["volumes"] if one["name"] == volume)
    kept = dict(place)
    place.clear()
    place.update({"name": volume, **source})
    with pytest.raises(WishError, match=f"volume {volume} of Deployment net-[0-9a-f]+ is no {kind}"):
        reader("net", found, "report.html")
    assert reader("net", made(raw, CERTIFICATES)[1], "report.html")["spec"]["volumes"] == [kept]


def _no_owner(found: JSON) -> None:
    del found["metadata"]["ownerReferences"]


def _another_object(found: JSON) -> None:
    found["metadata"]["ownerReferences"][0]["uid"] = "of-an-object-of-before"


def _no_controller(found: JSON) -> None:
    found["metadata"]["ownerReferences"][0]["controller"] = False


@pytest.mark.parametrize("change", [_no_owner, _another_object, _no_controller])
async def test_a_deployment_that_the_operator_did_not_make_is_not_read(change: Callable[[JSON], None]) -> None:
    obj, found, children = made()
    change(found)
    with pytest.raises(WishError, match="is not the operator's: its controller is "):
        await fetch(Cluster(found), obj, children.revision, "report.html")  # type: ignore[arg-type]


async def test_labels_alone_make_no_deployment_the_revisions() -> None:
    obj, found, children = made()
    other = copy.deepcopy(found)
    other["metadata"]["name"] = "a-first-one"
    assert await deployment_of(Cluster(other, found), obj, children.revision) is found  # type: ignore[arg-type]
    with pytest.raises(WishError, match="has no Deployment of revision"):
        await deployment_of(Cluster(other), obj, children.revision)  # type: ignore[arg-type]


async def test_a_digest_that_status_does_not_have_is_not_proven() -> None:
    obj, found, children = made()
    assert proven(obj, found) == DIGEST
    engine = {"fingerprint": children.fingerprint, "backend": "onnxruntime", "precision": "fp32",
              "manifestDigest": DIGEST}
    obj["status"] = {"engine": engine}
    assert proven(obj, found) == DIGEST
    engine["manifestDigest"] = "sha256:" + "0" * 64
    with pytest.raises(WishError, match=r"status\.engine\.manifestDigest is sha256:0000"):
        await fetch(Cluster(found), obj, children.revision, "report.html")  # type: ignore[arg-type]
    engine["fingerprint"] = "ab" * 32
    assert proven(obj, found) == DIGEST, "status speaks of another engine"
