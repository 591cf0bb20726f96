"""Every manifest of four typical objects. Read a difference before accepting it: it is what a cluster will be given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.config import Images, OperatorConfig, Resources
from enginewright.core.manifests import (
    Owner,
    batch_job,
    deployment,
    fleet_service,
    gc_job,
    grpc_route,
    http_route,
    member,
    revision_service,
    service,
    signing_secret,
)
from enginewright.core.manifests.captures import capture_mark, capture_record
from enginewright.core.manifests.gc_job import captures_job
from enginewright.core.manifests.service import mirror_name, mirror_service
from enginewright.core.manifests.signing import capture_secret
from enginewright.core.spec.fleet import as_raw, classes_of, member_spec
from enginewright.core.spec.gateway import GatewaySpec
from enginewright_builder.contract import CAPTURE_SECRET
from support.children import Children, children_of, good_spec
from support.goldens import check_golden

HERE = Path(__file__).parent
IMAGES = Images(builder="registry.example/builder@sha256:b", server="registry.example/server:1",
                operator="registry.example/operator:1")
H100 = "NVIDIA-H100-80GB-HBM3"

CPU: dict[str, Any] = {
    "source": {"uri": "pvc://models/all-minilm-l6-v2"},
    "engine": {"maxBatchSize": 16, "buildBudgetSeconds": 300, "calibration": {"uri": "pvc://models/c.jsonl"}},
    "accuracy": {"maxLoss": 0.02, "evaluation": {"uri": "pvc://data/e.jsonl"}},
    "placement": {"accelerator": "cpu"},
    "serving": {"resources": {"requests": {"cpu": "100m", "memory": "512Mi"}}},
    "autoscaling": {"minReplicas": 1, "maxReplicas": 3},
}
GPU: dict[str, Any] = {
    "source": {"uri": "https://host.example/bert.onnx"},
    "engine": {"backend": "tensorrt", "precision": "fp16", "queueName": "gpu-builds",
               "resources": {"limits": {"memory": "64Gi"}},
               "podTemplate": {
                   "metadata": {"labels": {"kueue.x-k8s.io/priority-class": "nightly"}},
                   "spec": {
                       "priorityClassName": "batch",
                       "volumes": [{"name": "ca", "configMap": {"name": "company-ca"}}],
                       "containers": [
                           {"name": name, "env": [{"name": "SSL_CERT_FILE", "value": "/ca/ca.crt"}],
                            "volumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}]}
                           for name in ("resolve", "build")],
                   }}},
    "placement": {"gpu": {"product": H100, "count": 2},
                  "tolerations": [{"key": "spot", "operator": "Exists"}]},
    "rollout": {"strategy": "BlueGreen", "maxSurge": 2},
    "store": {"uri": "pvc://engines/team-a"},
}
MIG: dict[str, Any] = {
    "source": {"uri": "pvc://models/bert"},
    "placement": {"gpu": {"product": H100}, "mig": {"profile": "auto"}},
    "rollout": {"strategy": "Recreate"},
    "serving": {"podTemplate": {
        "metadata": {"labels": {"team": "search"}, "annotations": {"example.com/note": "hello"}},
        "spec": {
            "priorityClassName": "serving",
            "volumes": [{"name": "logs", "emptyDir": {}}],
            "containers": [
                {"name": "server", "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
                 "volumeMounts": [{"name": "logs", "mountPath": "/logs"}]},
                {"name": "shipper", "image": "example/shipper:1",
                 "volumeMounts": [{"name": "logs", "mountPath": "/logs"}]},
            ]}}},
}
DRA: dict[str, Any] = {
    "source": {"uri": "pvc://models/bert"},
    "placement": {"gpu": {"product": H100}, "mig": {"profile": "3g.40gb", "dra": {}}},
}
SPOT: dict[str, Any] = {
    "source": {"uri": "pvc://models/bert"},
    "placement": {"gpu": {"product": H100}, "spot": {"builds": "Prefer", "replicas": "Require"}},
}
BUCKET: dict[str, Any] = {
    "source": {"uri": "s3://models/all-minilm-l6-v2", "secretRef": {"name": "model-bucket"}},
    "placement": {"accelerator": "cpu"},
    "store": {"uri": "s3://engines/team-a", "secretRef": {"name": "engine-bucket"},
              "serviceAccountName": "engines"},
}
CONFIGS = {
    "bucket": OperatorConfig(images=IMAGES),
    "cpu": OperatorConfig(images=IMAGES),
    "gpu": OperatorConfig(images=IMAGES, runtime_class_name="nvidia", image_pull_secrets=("registry",)),
    "mig": OperatorConfig(images=IMAGES, server_args=("--log-verbose=1",),
                          server_resources=Resources(requests={"cpu": "1"}, limits={"memory": "4Gi"})),
    "dra": OperatorConfig(images=IMAGES),
    "spot": OperatorConfig(images=IMAGES,
                           spot_labels={"example.com/spot": "yes", "karpenter.sh/capacity-type": "spot"}),
}
SPECS = {"cpu": CPU, "gpu": GPU, "mig": MIG, "dra": DRA, "spot": SPOT, "bucket": BUCKET}
NAMES = {"cpu": "minilm", "gpu": "bert", "mig": "bert-slice", "dra": "bert-claim", "spot": "bert-spot",
         "bucket": "minilm"}
OBJECTS: dict[str, Children] = {kind: children_of(NAMES[kind], SPECS[kind], CONFIGS[kind]) for kind in SPECS}
CASES = [(kind, child) for kind, children in OBJECTS.items() for child in children.all()]


@pytest.mark.parametrize(("kind", "child"), CASES, ids=lambda value: value)
def test_manifest(kind: str, child: str) -> None:
    check_golden(HERE / kind / f"{child}.yaml", OBJECTS[kind].all()[child])


def test_service_of_one_revision() -> None:
    children = OBJECTS["cpu"]
    check_golden(HERE / "cpu" / "service_of_one_revision.yaml", service(children.owner, children.revision))


GATEWAY = GatewaySpec.model_validate({
    "parentRefs": [{"name": "public", "namespace": "edge", "sectionName": "https"}, {"name": "internal"}],
    "hostnames": ["minilm.example.com", "*.models.example.com"],
    "grpcHostnames": ["grpc.minilm.example.com"],
})


@pytest.mark.parametrize("child", ["http_route", "grpc_route"])
def test_routes_of_a_canary_at_20_per_cent(child: str) -> None:
    children = OBJECTS["cpu"]
    weights = {children.revision: 80, "c0ffee00": 20}
    make = {"http_route": http_route, "grpc_route": grpc_route}[child]
    check_golden(HERE / "cpu" / f"{child}.yaml", make(children.owner, GATEWAY, weights))


def test_service_of_a_revision_behind_routes() -> None:
    children = OBJECTS["cpu"]
    check_golden(HERE / "cpu" / "revision_service.yaml", revision_service(children.owner, children.revision))


RUN = {"input": {"uri": "pvc://data/rows.npz"}, "output": {"uri": "pvc://data/answers"}, "shards": 20, "parallelism": 4}


@pytest.mark.parametrize("kind", ["spot", "bucket"])
def test_job_of_a_data_set(kind: str) -> None:
    run = children_of(NAMES[kind], {**SPECS[kind], "batch": RUN}, CONFIGS[kind])
    check_golden(HERE / kind / "batch_job.yaml", batch_job(run.owner, run.spec, run.record, run.placement, run.config))


ZERO = children_of("minilm", {**CPU, "autoscaling": {"minReplicas": 0, "maxReplicas": 3}}, CONFIGS["cpu"])


def test_service_by_which_live_requests_reach_a_candidate() -> None:
    children = OBJECTS["cpu"]
    check_golden(HERE / "cpu" / "mirror_service.yaml", mirror_service(children.owner, children.revision))


@pytest.mark.parametrize("child", ["activator", "activator_service", "backend_service"])
def test_what_holds_requests_while_there_is_no_replica(child: str) -> None:
    check_golden(HERE / "cpu" / f"{child}.yaml", ZERO.all()[child])


FLEET: dict[str, Any] = {
    "source": {"uri": "pvc://models/all-minilm-l6-v2"},
    "placement": {
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "classes": [
            {"name": "slice", "gpu": {"product": H100}, "mig": {"profile": "1g.10gb"}, "maxReplicas": 6},
            {"name": "cpu", "accelerator": "cpu", "nodeSelector": {"pool": "general"}, "minReplicas": 2},
        ],
    },
    "autoscaling": {"minReplicas": 1, "maxReplicas": 3},
}
FLEET_OWNER = Owner(name="minilm", namespace="models", uid="9c858901-8a57-4791-81fe-4c455b099bc9")


@pytest.mark.parametrize("index", [0, 1])
def test_object_of_a_class(index: int) -> None:
    spec = good_spec(FLEET)
    entry = classes_of(spec)[index]
    made = member(FLEET_OWNER, entry.name, as_raw(member_spec(spec, entry)), {labels.PROMOTE: "c0ffee00"})
    check_golden(HERE / "fleet" / f"member_{entry.name}.yaml", made)


def test_service_of_a_fleet() -> None:
    check_golden(HERE / "fleet" / "service.yaml", fleet_service(FLEET_OWNER))


def test_replicas_of_a_class_have_the_fleets_label_and_serve_the_model_under_its_name() -> None:
    spec = good_spec(FLEET)
    children = children_of("minilm-slice", as_raw(member_spec(spec, classes_of(spec)[0])), CONFIGS["cpu"])
    owner = replace(children.owner, fleet="minilm")
    made = deployment(owner, children.spec, children.record, children.placement, children.config)
    check_golden(HERE / "fleet" / "deployment.yaml", made)


def test_replicas_whose_live_answers_are_held_against_the_source_model() -> None:
    quality = {"sampleShare": 0.05, "resources": {"limits": {"memory": "4Gi"}}}
    children = children_of("minilm", {**CPU, "quality": quality}, CONFIGS["cpu"])
    check_golden(HERE / "cpu" / "deployment_with_monitor.yaml", children.all()["deployment"])


CAPTURE: dict[str, Any] = {**CPU, "quality": {"capture": {}}, "store": {"uri": "pvc://engines/team-a"}}


def test_replicas_that_capture_requests() -> None:
    children = children_of("minilm", CAPTURE, CONFIGS["cpu"])
    check_golden(HERE / "cpu" / "deployment_that_captures.yaml", children.all()["deployment"])
    plain = children_of("minilm", {**CAPTURE, "quality": {}}, CONFIGS["cpu"])
    assert children.fingerprint == plain.fingerprint, "what is captured makes no other engine"
    assert children.revision != plain.revision, "and other replicas"


def test_a_revision_of_before_captures_nothing_where_the_spec_of_today_does_not() -> None:
    children = children_of("minilm", CAPTURE, CONFIGS["cpu"])
    made = deployment(children.owner, children.spec, children.record, children.placement, children.config,
                      capture=False)
    pod = made["spec"]["template"]["spec"]
    assert made["metadata"]["name"] == children.all()["deployment"]["metadata"]["name"]
    assert labels.CAPTURES not in made["metadata"]["annotations"]
    assert not [one for one in pod["containers"][1]["args"] if "capture" in one]
    assert not [one for one in pod["containers"][1]["volumeMounts"] if one["name"] in ("engine-store", "capture-keys")]


@pytest.mark.parametrize("step", ["resolve_job", "build_job"])
def test_a_job_that_reads_captured_requests_has_their_key(step: str) -> None:
    data = {"accuracy": {"evaluation": {"uri": "captured://minilm"}}}
    spec = children_of("minilm", {**CPU, **data}, CONFIGS["cpu"]).all()[step]["spec"]["template"]["spec"]
    (volume,) = [one for one in spec["volumes"] if one["name"] == "capture-keys"]
    assert volume["secret"] == {"secretName": CAPTURE_SECRET, "defaultMode": 0o440, "optional": True}
    (mount,) = [one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "capture-keys"]
    assert mount == {"name": "capture-keys", "mountPath": "/capture-keys", "readOnly": True}
    plain = children_of("minilm", CPU, CONFIGS["cpu"]).all()[step]["spec"]["template"]["spec"]
    assert "capture-keys" not in {one["name"] for one in plain["volumes"]}


def test_what_removes_captured_requests() -> None:
    record = capture_record("models", "claim-uid", "pvc://engines/team-a", "minilm")
    check_golden(HERE / "cpu" / "capture_record.yaml", record)
    mark = capture_mark({**record, "metadata": {**record["metadata"], "resourceVersion": "1",
                                                "creationTimestamp": "2026-01-01T00:00:00Z"}})
    assert mark is not None
    check_golden(HERE / "cpu" / "captures_job.yaml", captures_job("models", mark, CONFIGS["cpu"], everything=True))
    check_golden(HERE / "cpu" / "capture_secret.yaml", capture_secret("models"))


def test_a_monitor_is_told_of_candidates_only_where_live_requests_are_to_be_mirrored() -> None:
    def made(**spec: Any) -> tuple[str, dict[str, Any]]:
        children = children_of("minilm", {**CPU, "quality": {}, **spec}, CONFIGS["cpu"])
        return children.revision, children.all()["deployment"]["spec"]["template"]["spec"]["containers"][1]

    (revision, plain), (same, told) = made(), made(rollout={"analysis": {"mirror": True}})
    assert revision == same, "how a rollout goes makes no other revision"
    assert (set(told["args"]) - set(plain["args"]), "env" in plain) == ({f"--mirror={mirror_name('minilm')}"}, False)
    assert {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in told["env"]} == {
        "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_a_source_that_must_be_signed(kind: str) -> None:
    signature = {f"{kind[0].lower()}{kind[1:]}KeyRef": {"name": "release-keys", "key": "models.pub"}}
    source = {"uri": "pvc://models/all-minilm-l6-v2", "signature": signature}
    children = children_of("minilm", {**CPU, "source": source}, CONFIGS["cpu"])
    check_golden(HERE / "cpu" / f"resolve_job_signed_{kind.lower()}.yaml", children.all()["resolve_job"])
    assert children.fingerprint == OBJECTS["cpu"].fingerprint, "who signed it makes no other engine"


@pytest.mark.parametrize("step", ["resolve_job", "build_job"])
def test_a_source_that_wants_credentials(step: str) -> None:
    source = {"uri": "s3://models/all-minilm-l6-v2", "secretRef": {"name": "models-bucket"},
              "serviceAccountName": "model-reader"}
    children = children_of("minilm", {**CPU, "source": source}, CONFIGS["cpu"])
    check_golden(HERE / "cpu" / f"{step}_with_credentials.yaml", children.all()[step])
    assert children.fingerprint == OBJECTS["cpu"].fingerprint, "where it lies and who may read it make no other engine"


@pytest.mark.parametrize("kind", ["cpu", "gpu", "dra"])
def test_a_build_of_a_language_model(kind: str) -> None:
    images = replace(CONFIGS[kind].images, server_vllm="registry.example.com/vllm:1")
    raw = {"task": "generate", "source": {"uri": "pvc://models/smollm2"}, "placement": SPECS[kind]["placement"],
           "accuracy": {"evaluation": {"uri": "pvc://models/prompts.jsonl"}},
           "objective": {"tokens": {"ttftMilliseconds": 500}}}
    check_golden(HERE / kind / "build_job_of_language_model.yaml",
                 children_of(NAMES[kind], raw, replace(CONFIGS[kind], images=images)).all()["build_job"])


def test_collector_of_unused_engines() -> None:
    manifest = gc_job("models", "pvc://engines/team-a", "claim-uid", ["e" * 64, "f" * 64], CONFIGS["cpu"])
    check_golden(HERE / "cpu" / "gc_job.yaml", manifest)


def test_collector_of_unused_engines_in_a_bucket() -> None:
    access = {"secret": "engine-bucket", "serviceAccount": "engines"}
    manifest = gc_job("models", "s3://engines/team-a", "", ["e" * 64, "f" * 64], CONFIGS["bucket"], access)
    check_golden(HERE / "bucket" / "gc_job.yaml", manifest)


def test_the_key_that_build_jobs_sign_engines_with() -> None:
    check_golden(HERE / "cpu" / "signing_secret.yaml", signing_secret("models"))


def test_no_golden_is_left_over() -> None:
    wanted = {f"{kind}/{child}.yaml" for kind, child in CASES}
    wanted |= {"cpu/service_of_one_revision.yaml", "cpu/gc_job.yaml", "bucket/gc_job.yaml", "cpu/http_route.yaml",
               "bucket/batch_job.yaml", "spot/batch_job.yaml",
               "cpu/grpc_route.yaml", "cpu/revision_service.yaml", "cpu/activator.yaml", "cpu/activator_service.yaml",
               "cpu/mirror_service.yaml", "cpu/signing_secret.yaml",
               "cpu/backend_service.yaml", "cpu/deployment_with_monitor.yaml", "cpu/deployment_that_captures.yaml",
               "cpu/capture_record.yaml", "cpu/captures_job.yaml", "cpu/capture_secret.yaml",
               "fleet/member_slice.yaml",
               "cpu/resolve_job_signed_configmap.yaml", "cpu/resolve_job_signed_secret.yaml",
               "cpu/resolve_job_with_credentials.yaml", "cpu/build_job_with_credentials.yaml",
               *(f"{kind}/build_job_of_language_model.yaml" for kind in ("cpu", "gpu", "dra")),
               "fleet/member_cpu.yaml", "fleet/service.yaml", "fleet/deployment.yaml"}
    assert {path.relative_to(HERE).as_posix() for path in HERE.rglob("*.yaml")} == wanted
