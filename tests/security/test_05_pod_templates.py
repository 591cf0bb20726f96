"""A pod template that reaches the node, other people's tokens, or what is the operator's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core import labels
from enginewright.core.manifests.deployment import revision_name
from enginewright.core.plan import Apply
from enginewright.core.spec import Spec, parse_spec, validate
from support.children import children_of
from support.cluster import SPEC, Cluster

JSON = dict[str, Any]
BASE: JSON = {"source": {"uri": "pvc://models/a"}, "placement": {"accelerator": "cpu"}}
MINE: JSON = {"name": "mine", "emptyDir": {}}
FIELDS = ("serving", "engine")
OWN = {"serving": "server", "engine": "build"}
SIGNING_KEY, CAPTURE_KEY = "enginewright-engine-signing", "enginewright-capture-signing"

# Each with as little in it as it takes. What a later Kubernetes adds: cluster/test_05_fields_of_kubernetes.py.
REFUSED_VOLUMES: JSON = {
    "awsElasticBlockStore": {"volumeID": "v"}, "azureDisk": {"diskName": "d", "diskURI": "u"},
    "azureFile": {"secretName": "s", "shareName": "s"}, "cephfs": {"monitors": ["m"]}, "cinder": {"volumeID": "v"},
    "csi": {"driver": "hostpath.csi.k8s.io"}, "fc": {"wwids": ["w"]}, "flexVolume": {"driver": "d"},
    "flocker": {"datasetName": "d"}, "gcePersistentDisk": {"pdName": "p"}, "gitRepo": {"repository": "r"},
    "glusterfs": {"endpoints": "e", "path": "p"}, "hostPath": {"path": "/"}, "image": {"reference": "r"},
    "iscsi": {"iqn": "i", "lun": 0, "targetPortal": "t"}, "nfs": {"server": "s", "path": "/"},
    "photonPersistentDisk": {"pdID": "p"}, "portworxVolume": {"volumeID": "v"},
    "quobyte": {"registry": "r", "volume": "v"}, "rbd": {"image": "i", "monitors": ["m"]},
    "scaleIO": {"gateway": "g", "system": "s", "secretRef": {"name": "s"}}, "storageos": {"volumeName": "v"},
    "vsphereVolume": {"volumePath": "v"},
    "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "vault"}}]},
    "secret": {"secretName": SIGNING_KEY},
    "ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Block"}}},
}
ALLOWED_VOLUMES: tuple[JSON, ...] = (
    {"configMap": {"name": "ca", "items": [{"key": "a", "path": "b"}]}}, {"secret": {"secretName": "s"}},
    {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}, {"persistentVolumeClaim": {"claimName": "c"}},
    {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                                                    "resources": {"requests": {"storage": "1Gi"}}}}}},
    {"projected": {"sources": [{"configMap": {"name": "a"}}, {"secret": {"name": "b"}}]}},
)


def problems(field: str, **pod: Any) -> list[str]:
    """The fields that the operator refuses in this template."""
    spec = parse_spec({**BASE, field: {"podTemplate": {"spec": pod}}})
    return [problem.field for problem in (validate(spec) if isinstance(spec, Spec) else spec)]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kind", REFUSED_VOLUMES)
def test_no_volume_reaches_the_node_or_a_token(field: str, kind: str) -> None:
    assert problems(field, volumes=[{"name": "mine", kind: REFUSED_VOLUMES[kind]}])
    beside = {"name": "mine", "emptyDir": {}, kind: REFUSED_VOLUMES[kind]}
    assert problems(field, volumes=[beside]), "not beside another kind either"


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("volume", ALLOWED_VOLUMES, ids=lambda volume: next(iter(volume)))
def test_volumes_of_the_namespace_are_the_users(field: str, volume: JSON) -> None:
    assert problems(field, volumes=[{"name": "mine", **volume}]) == []


@pytest.mark.parametrize("source", [
    {"serviceAccountToken": {"path": "t"}}, {"clusterTrustBundle": {"path": "t"}},
    {"podCertificate": {"signerName": "example.com/a", "keyType": "ED25519"}}, {"secret": {"name": SIGNING_KEY}},
], ids=lambda source: next(iter(source)))
def test_no_source_of_a_projected_volume_brings_a_token_or_a_key(source: JSON) -> None:
    sources = [{"configMap": {"name": "a"}}, source]
    assert problems("serving", volumes=[{"name": "mine", "projected": {"sources": sources}}])


RESERVED = {"serving": ("/models", "/smoke-test", "/tmp", "/dev/shm", "/traces"),
            "engine": ("/request", "/sources", "/store", "/signature", "/model-control", "/tmp", "/dev/shm")}
IMAGES_OWN = ("/", "/usr", "/usr/lib/python3", "/etc", "/etc/ld.so.preload", "/opt/tritonserver/backends", "/bin",
              "/lib64", "/dev", "/proc", "/sys", "/var/run/secrets", "/root/.config", "/home", "/workspace")


def mounted(field: str, path: str, **more: Any) -> list[str]:
    mount = {"name": "mine", "mountPath": path, **more}
    return problems(field, volumes=[MINE], containers=[{"name": OWN[field], "volumeMounts": [mount]}])


@given(st.sampled_from(FIELDS), st.data(), st.lists(st.sampled_from(["a", "engine", "minilm", "0"]), max_size=3),
       st.sampled_from(["/", "//", "/./", ""]))
def test_nothing_is_mounted_at_or_below_what_is_the_operators(field: str, data: st.DataObject, below: list[str],
                                                              end: str) -> None:
    reserved = data.draw(st.sampled_from(RESERVED[field]))
    written = data.draw(st.sampled_from([reserved, reserved.replace("/", "//"), f"/mine/..{reserved}"]))
    assert mounted(field, "/".join([written, *below]) + end)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("path", IMAGES_OWN)
def test_nothing_is_mounted_over_or_into_what_the_image_runs(field: str, path: str) -> None:
    assert mounted(field, path)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("path", ["/ca", "/mnt/data/a", "/modelsx", "/etc/ssl/certs/company.pem", "/logs/"])
def test_other_paths_are_the_users(field: str, path: str) -> None:
    assert mounted(field, path, readOnly=True, subPath="a/b") == []


@pytest.mark.parametrize("more", [
    {"subPath": "../x"}, {"subPath": "/x"}, {"subPath": "a/../../x"}, {"subPathExpr": "$(A)"},
    {"mountPropagation": "Bidirectional"}, {"mountPropagation": "HostToContainer"}, {"somethingNew": "x"},
], ids=str)
def test_a_mount_does_not_lead_out_of_its_volume(more: JSON) -> None:
    assert mounted("serving", "/mine", **more)


@given(st.sampled_from(["engine", "tmp", "shm", "smoke-test", "traces", "verify-tmp", "quality-tmp", "batch-tmp"]),
       st.sampled_from(["server", "sidecar"]))
def test_no_container_of_the_users_mounts_the_operators_volumes(volume: str, name: str) -> None:
    """The engine and what the smoke test runs lie in them."""
    image = {} if name == "server" else {"image": "example/a:1"}
    mount = {"name": volume, "mountPath": "/mine"}
    assert problems("serving", containers=[{"name": name, **image, "volumeMounts": [mount]}])
    assert problems("serving", volumes=[{"name": volume, "emptyDir": {}}]), "and none takes its name"


VARIABLES = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES", "CUDA_INJECTION64_PATH",
             "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GCONV_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP",
             "PATH", "HOME", "BASH_ENV", "ENV", "OPENSSL_CONF", "KUBERNETES_SERVICE_HOST", "GLIBC_TUNABLES", "HF_HOME",
             "TRITON_CUDACRT_PATH", "TORCHINDUCTOR_CACHE_DIR", "TMPDIR", "ENGINEWRIGHT_STORE_AWS_ENDPOINT_URL")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("name", VARIABLES)
def test_no_variable_changes_what_runs_or_on_which_device(field: str, name: str) -> None:
    assert problems(field, containers=[{"name": OWN[field], "env": [{"name": name, "value": "x"}]}])


@given(st.sampled_from(FIELDS), st.from_regex(r"[A-Z_]{1,12}[A-Z0-9_]{0,12}", fullmatch=True))
def test_an_unknown_variable_is_refused(field: str, name: str) -> None:
    known = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE",
             "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
             "MALLOC_ARENA_MAX", "HF_TOKEN", "HF_ENDPOINT")
    if name not in known and not name.startswith(("AWS_", "GOOGLE_", "REGISTRY_")):
        assert problems(field, containers=[{"name": OWN[field], "env": [{"name": name, "value": "x"}]}])


@pytest.mark.parametrize("part", [
    {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
    {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": SIGNING_KEY, "key": "key"}}}]},
    {"envFrom": [{"secretRef": {"name": SIGNING_KEY}}]}, {"envFrom": [{"secretRef": {"name": CAPTURE_KEY}}]},
    {"envFrom": [{"prefix": "NVIDIA_", "configMapRef": {"name": "a"}}]},
    {"ports": [{"containerPort": 9000, "hostPort": 80}]}, {"ports": [{"containerPort": 9000, "hostIP": "0.0.0.0"}]},
    {"ports": [{"containerPort": 9000, "name": "metrics"}]}, {"ports": [{"containerPort": 8002}]},
    {"resources": {"claims": [{"name": "accelerator"}]}}, {"resources": {"limits": {"nvidia.com/gpu": 1}}},
    {"readinessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80, "path": "/"}}},
    {"livenessProbe": {"tcpSocket": {"host": "10.0.0.1", "port": 22}}},
    {"lifecycle": {"preStop": {"httpGet": {"host": "10.0.0.1", "port": 80}}}},
    {"securityContext": {"privileged": True}}, {"securityContext": {"procMount": "Unmasked"}},
    {"volumeDevices": [{"name": "mine", "devicePath": "/dev/sda"}]}, {"restartPolicy": "Always"},
    {"terminationMessagePath": "/tmp/x"}, {"stdin": True}, {"somethingNew": True},
], ids=str)
def test_a_sidecar_gets_nothing_of_the_node_and_nothing_of_the_operators(part: JSON) -> None:
    assert problems("serving", containers=[{"name": "mine", "image": "a", **part}])


@pytest.mark.parametrize("part", [
    {"hostNetwork": True}, {"hostPID": True}, {"hostIPC": True}, {"hostUsers": True}, {"shareProcessNamespace": True},
    {"automountServiceAccountToken": True}, {"serviceAccountName": "admin"}, {"serviceAccount": "admin"},
    {"runtimeClassName": "other"}, {"nodeName": "control-plane"}, {"hostname": "a"}, {"subdomain": "a"},
    {"securityContext": {"runAsUser": 0}}, {"initContainers": [{"name": "a", "image": "a"}]},
    {"ephemeralContainers": [{"name": "a", "image": "a"}]}, {"resourceClaims": [{"name": "a"}]},
    {"overhead": {"cpu": 1}},
    {"imagePullSecrets": [{"name": SIGNING_KEY}]}, {"enableServiceLinks": True}, {"somethingNew": True},
    {"affinity": {"nodeAffinity": {"somethingNew": []}}}, {"affinity": {"nodeAffinity": "x"}}, {"dnsConfig": {"a": 1}},
], ids=str)
def test_nothing_else_of_a_pod_is_taken(part: JSON) -> None:
    assert problems("serving", **part)
    assert problems("engine", **part)


@pytest.mark.parametrize("key", [
    "container.apparmor.security.beta.kubernetes.io/server", "seccomp.security.alpha.kubernetes.io/pod",
    "scheduler.alpha.kubernetes.io/node-selector", "something.new.k8s.io/x", "kubernetes.io/config.source"])
@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_kubernetes_is_told_nothing_by_an_annotation(key: str, kind: str) -> None:
    spec = parse_spec({**BASE, "serving": {"podTemplate": {"metadata": {kind: {key: "unconfined"}}}}})
    assert isinstance(spec, Spec)
    assert validate(spec)


@pytest.mark.parametrize("key", [SIGNING_KEY, CAPTURE_KEY])
@pytest.mark.parametrize("field", ["source", "store", "signature"])
def test_no_credentials_are_a_key_that_the_store_is_signed_with(field: str, key: str) -> None:
    spec: JSON = {**BASE, "source": {"uri": "s3://models/a"}, "store": {"uri": "s3://engines/a"}}
    if field == "signature":
        reference = {"name": key, "key": "key"}
        spec["source"] = {**BASE["source"], "signature": {"secretKeyRef": reference}}
    else:
        spec[field] = {**spec[field], "secretRef": {"name": key}}
    found = parse_spec(spec)
    assert isinstance(found, Spec)
    assert [problem for problem in validate(found) if problem.value == f'"{key}"']


def test_what_is_given_no_device_sees_none_whatever_its_image_says() -> None:
    """Images for GPUs ask for all of them, by a variable that NVIDIA's runtime heeds."""
    spec = {**BASE, "serving": {"image": "example/gpu:1", "podTemplate": {"spec": {
        "containers": [{"name": "mine", "image": "example/gpu:1", "env": [{"name": "A", "value": "b"}]}]}}}}
    pod = children_of("m", spec).all()["deployment"]["spec"]["template"]["spec"]
    for container in pod["containers"]:
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container.get("env", []), container["name"]


def test_a_kept_revision_is_asked_again() -> None:
    """Who may write ConfigMaps can forge one, and its name is no secret."""
    cluster = Cluster(spec=SPEC)
    cluster.settle()
    (kept,) = cluster.kept.values()
    root = {"name": "root", "hostPath": {"path": "/"}}
    raw = {**kept.spec, "serving": {"podTemplate": {"spec": {"volumes": [root]}}}}
    spec = parse_spec({**raw, "serving": {**raw["serving"], "image": kept.image}})
    assert isinstance(spec, Spec)
    forged = revision_name(kept.outcome.fingerprint, spec, kept.placement, cluster.config)
    cluster.kept[forged] = replace(kept, revision=forged, spec=raw)
    cluster.annotations[labels.ROLLBACK_TO] = forged
    for _ in range(30):
        for action in cluster.step().actions:
            if isinstance(action, Apply) and action.manifest["kind"] == "Deployment":
                assert "hostPath" not in str(action.manifest)
