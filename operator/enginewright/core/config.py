"""Settings of one operator installation, as plain data; the shell reads them from its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PullPolicy = Literal["Always", "IfNotPresent", "Never"]


# Of GKE (and its older preemptible nodes), EKS, AKS and Karpenter.
SPOT_LABELS = {
    "cloud.google.com/gke-preemptible": "true",
    "cloud.google.com/gke-spot": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}


@dataclass(frozen=True, kw_only=True)
class Images:
    """``builder`` runs resolve and build Jobs, ``server`` serves, ``operator`` verifies an engine before it is loaded.
    ``server_vllm`` serves language models; empty where the platform has none.

    An image's entry point must execute its arguments: ``tritonserver`` of the server image, ``enginewright-build`` of
    the builder image and ``python3 -m enginewright_builder.verify`` of the operator image are found on their paths.
    """

    builder: str = "enginewright-builder:latest"
    server: str = "enginewright-server:latest"
    server_vllm: str = ""
    operator: str = "enginewright-operator:latest"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Requests and limits as Kubernetes writes them; used where the object gives none."""

    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What devices cost. ``per_hour`` maps a device class to the price of one device for an hour: a GPU product,
    ``product/profile`` for a MIG slice, or ``cpu`` for one replica without a GPU. They enter no fingerprint: a price
    that changes rebuilds nothing."""

    currency: str = ""
    per_hour: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DefaultStore:
    """The store of objects whose spec names none, as ``spec.store`` would say it; none where ``uri`` is empty.
    ``secret`` and ``service_account_name`` are names in each object's own namespace."""

    uri: str = ""
    secret: str = ""
    service_account_name: str = ""


@dataclass(frozen=True, kw_only=True)
class TrustedCA:
    """Certificates in PEM, in the entry ``key`` of a ConfigMap that each namespace of models has; empty for those of
    the images."""

    config_map: str = ""
    key: str = "ca.crt"


@dataclass(frozen=True, kw_only=True)
class OperatorConfig:
    """Durations in seconds.

    ``require_mig_config_state`` asks nodes for ``nvidia.com/mig.config.state=success``, the label of NVIDIA's MIG
    manager; a cluster that is partitioned by other means switches it off. ``observe_nodes`` lets the operator read
    nodes, and the pods on those with GPUs in all namespaces: without, or without the right to, it says and does nothing
    about where there is room. ``spot_labels`` tell spot nodes, each alone; taints of the same key and value are theirs.
    ``job_labels`` and ``job_annotations`` are on all Jobs and their pods, ``job_env`` (names and values) in their
    containers; what an object's ``spec.engine.podTemplate`` says comes before them. ``trusted_ca`` is for all Jobs, and
    for replicas that fetch their engine from a bucket.
    """

    images: Images = field(default_factory=Images)
    # Clients keep gRPC connections for good, past the moment when a replica leaves the Service, and to one replica of
    # many. Renewed every three seconds (an orderly GOAWAY), they are gone from a replica before its drain is over.
    server_args: tuple[str, ...] = ("--grpc-max-connection-age=3000",)
    pull_policy: PullPolicy = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    runtime_class_name: str = ""
    require_mig_config_state: bool = True
    observe_nodes: bool = True
    spot_labels: Mapping[str, str] = field(default_factory=lambda: dict(SPOT_LABELS))
    resolve_resources: Resources = Resources(requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "2Gi"})
    build_resources: Resources = Resources(requests={"cpu": "1", "memory": "4Gi"}, limits={"memory": "16Gi"})
    prove_resources: Resources = Resources(requests={"cpu": "250m", "memory": "256Mi"}, limits={"memory": "2Gi"})
    server_resources: Resources = Resources(requests={"cpu": "500m", "memory": "1Gi"})
    verify_resources: Resources = Resources(requests={"cpu": "50m", "memory": "64Mi"}, limits={"memory": "256Mi"})
    activator_resources: Resources = Resources(requests={"cpu": "50m", "memory": "96Mi"}, limits={"memory": "768Mi"})
    quality_resources: Resources = Resources(requests={"cpu": "50m", "memory": "256Mi"},
                                             limits={"cpu": "1", "memory": "2Gi"})
    activator_replicas: int = 1
    default_store: DefaultStore = field(default_factory=DefaultStore)
    collect_engines: bool = True
    engine_grace: int = 604_800  # that an engine is kept after the last that referred to it has gone
    job_labels: Mapping[str, str] = field(default_factory=dict)
    job_annotations: Mapping[str, str] = field(default_factory=dict)
    job_env: Mapping[str, str] = field(default_factory=dict)
    job_priority_class_name: str = ""
    trusted_ca: TrustedCA = field(default_factory=TrustedCA)
    job_ttl: int = 3600
    job_backoff_limit: int = 2
    job_pending_limit: int = 86_400  # that a Job may wait for a device that is free
    resolve_deadline: int = 1800
    build_deadline_margin: int = 900  # beyond the build budget: image pull, fetch, publish
    # A connection lives for three seconds, and on a busy node kube-proxy learns late which replicas end. One that has
    # begun to end answers NOT_FOUND to what still comes: with 5 s, requests were lost where kube-proxy was 4 s behind.
    drain_seconds: int = 10
    exit_timeout: int = 30
    prices: Prices = field(default_factory=Prices)
    openshift: bool = False  # which gives pods their user and groups
