"""Which hardware the engine is built on and served by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from enginewright.core.spec.base import MAX_NAME, Remedy, SpecModel

MAX_CLASSES = 8
ClassName = Annotated[
    str,
    Field(min_length=1, max_length=20, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
    Remedy("write at most 20 lower-case letters, digits and '-', such as h100 or cpu"),
]
LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
# As the apiserver checks those of nodes and taints (k8s.io/apimachinery, util/validation).
_KEY = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
NodeLabelKey = Annotated[
    str, Field(min_length=1, max_length=317, pattern=rf"^{_KEY}$"),
    Remedy("write the key of a node's label, such as topology.kubernetes.io/zone"),
]
NodeLabelValue = Annotated[
    str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"),
    Remedy("write at most 63 letters, digits, '-', '_' and '.', a letter or digit first and last"),
]
TaintKey = Annotated[
    str, Field(max_length=317, pattern=rf"^({_KEY})?$"), Remedy("write the taint's key, such as nvidia.com/gpu"),
]
Product = Annotated[
    str,
    Field(max_length=63, pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$"),
    Remedy("write the product as the node label nvidia.com/gpu.product shows it, such as NVIDIA-H100-80GB-HBM3"),
]
DeviceClassName = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"),
    Remedy("write the name of a DeviceClass of the cluster, such as mig.nvidia.com"),
]
Profile = Annotated[
    str,
    Field(max_length=16, pattern=r"^(auto|[1-7]g\.[0-9]{1,3}gb(\+me)?)$"),
    Remedy("write auto or a profile such as 1g.10gb"),
]


class GPUSpec(SpecModel):
    """Whole GPUs, or the boards whose MIG slices are used."""

    product: Product = ""
    """GPU product, as in the node label nvidia.com/gpu.product: the engine is built on it and served by it. Empty takes
    any GPU, and then the product that the build ran on."""
    count: int = Field(default=1, ge=1, le=16)
    """GPUs of one replica; model instances are put on each."""


class DRASpec(SpecModel):
    """Dynamic Resource Allocation instead of extended resources."""

    device_class_name: DeviceClassName = "mig.nvidia.com"
    """DeviceClass that MIG slices are claimed from."""


class MIGSpec(SpecModel):
    """A slice of a GPU instead of a whole one."""

    profile: Profile = "auto"
    """MIG profile such as 1g.10gb. auto begins with the smallest whose memory should hold the build, and goes on to the
    next larger while what was measured misses the objective or the memory; that needs placement.gpu.product."""
    strategy: Literal["single", "mixed"] = "mixed"
    """How the cluster's device plugin names slices: mixed (nvidia.com/mig-<profile>) or single (nvidia.com/gpu).
    Not used with dra."""
    dra: DRASpec | None = None
    """Claim the slice by Dynamic Resource Allocation (resource.k8s.io/v1) instead of an extended resource."""


class TolerationSpec(SpecModel):
    """A toleration, as in a pod."""

    key: TaintKey = ""
    """Taint key; empty with operator Exists matches all."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """How the value is compared."""
    value: NodeLabelValue = ""
    """Taint value; must be empty with operator Exists."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Taint effect; empty matches all."""
    toleration_seconds: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """How long a NoExecute taint is tolerated; absent means forever."""


class SpotSpec(SpecModel):
    """Nodes that cost less and may be taken back at any moment. Which labels tell them is a setting of the operator."""

    builds: Literal["Prefer", "Require"] | None = None
    """Build on spot nodes: rather, or only. A build that loses its node starts again with what it left in the store,
    and that counts as no failure. Absent: pods tolerate no taint of spot nodes, and go where they may."""
    replicas: Literal["Prefer", "Require"] | None = None
    """Serve on spot nodes, in the same way. For a share of the replicas make a class for it, with its own number."""


class PlacementClassSpec(SpecModel):
    """One class of devices of a fleet: what placement says elsewhere, and its replicas."""

    name: ClassName
    """Name of the class; it is served by the OptimisedModel NAME-CLASS, which is made from this one."""
    accelerator: Literal["gpu", "cpu"] = "gpu"
    """Class of device: gpu or cpu."""
    gpu: GPUSpec | None = None
    """Which GPUs, and how many a replica."""
    mig: MIGSpec | None = None
    """Use one MIG slice of a GPU for each replica."""
    node_selector: Annotated[Mapping[NodeLabelKey, NodeLabelValue], Field(max_length=32)] = Field(default_factory=dict)
    """Node labels that pods of this class need, besides those of placement.nodeSelector."""
    tolerations: tuple[TolerationSpec, ...] = Field(default=(), max_length=16)
    """Tolerations of pods of this class, besides those of placement.tolerations."""
    spot: SpotSpec | None = None
    """Use of spot nodes by this class; absent: as placement.spot says."""
    min_replicas: int | None = Field(default=None, ge=1, le=1000)
    """Fewest replicas of this class; absent: as spec.autoscaling says. Without spec.autoscaling their number, 1 when
    absent."""
    max_replicas: int | None = Field(default=None, ge=1, le=1000)
    """Most replicas of this class; absent: as spec.autoscaling says, which it needs."""


class PlacementSpec(SpecModel):
    """Where build and serving pods run."""

    accelerator: Literal["gpu", "cpu"] = "gpu"
    """Class of device: gpu or cpu."""
    gpu: GPUSpec | None = None
    """Which GPUs, and how many a replica."""
    mig: MIGSpec | None = None
    """Use one MIG slice of a GPU for each replica."""
    node_selector: Annotated[Mapping[NodeLabelKey, NodeLabelValue], Field(max_length=32)] = Field(default_factory=dict)
    """Node labels that build and serving pods need besides those derived from the accelerator."""
    tolerations: tuple[TolerationSpec, ...] = Field(default=(), max_length=16)
    """Tolerations of build and serving pods, besides nvidia.com/gpu for GPU pods."""
    spot: SpotSpec | None = None
    """Use of spot nodes."""
    classes: tuple[PlacementClassSpec, ...] | None = Field(
        default=None, min_length=2, max_length=MAX_CLASSES,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]})
    """A fleet: several classes of devices behind one Service, an engine built on each, promoted together. In place of
    accelerator, gpu and mig; nodeSelector and tolerations hold for all classes."""
