"""What users add to pods of ours; ``pod_template_rules`` says what may stand there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from enginewright.core.spec.base import LabelValue, SpecModel
from enginewright.core.spec.placement import LabelKey

Labels = Annotated[Mapping[LabelKey, LabelValue], Field(max_length=32)]
Annotations = Annotated[Mapping[LabelKey, Annotated[str, Field(max_length=4096)]], Field(max_length=32)]
PodSpec = Annotated[Mapping[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]


class PodMetadataSpec(SpecModel):
    """Labels and annotations added to serving pods."""

    labels: Labels = Field(default_factory=dict)
    """Labels added to serving pods. Keys of app.kubernetes.io/ and enginewright.io/ are reserved for the operator."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations added to serving pods. Keys of enginewright.io/ are reserved for the operator."""


class PodTemplateSpec(SpecModel):
    """What may be added to a serving pod; the server's own container, probes and security stay the operator's."""

    metadata: PodMetadataSpec = Field(default_factory=PodMetadataSpec)
    """Labels and annotations."""
    spec: PodSpec = Field(default_factory=dict)
    """Parts of a pod spec: affinity, topologySpreadConstraints, priorityClassName, schedulerName, imagePullSecrets,
    hostAliases, dnsConfig, volumes, and containers. A container named server may add env and volumeMounts to the
    server's; others are sidecars. All containers get the restricted security context, and mount no other volumes than
    those given here: configMap, secret, persistentVolumeClaim, emptyDir, ephemeral, downwardAPI, or projected from
    these."""


class JobMetadataSpec(SpecModel):
    """Labels and annotations added to resolve and build Jobs and to their pods."""

    labels: Labels = Field(default_factory=dict)
    """Labels added to the Jobs and to their pods, such as kueue.x-k8s.io/priority-class. Keys of app.kubernetes.io/,
    enginewright.io/ and batch.kubernetes.io/ are reserved."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations added to the Jobs and to their pods. Keys of enginewright.io/ are reserved for the operator."""


class JobPodTemplateSpec(SpecModel):
    """What may be added to resolve and build Jobs; their own containers' commands and security stay the operator's."""

    metadata: JobMetadataSpec = Field(default_factory=JobMetadataSpec)
    """Labels and annotations."""
    spec: PodSpec = Field(default_factory=dict)
    """Parts of a pod spec: affinity, priorityClassName, schedulerName, imagePullSecrets, hostAliases, dnsConfig,
    volumes, and containers. Containers named resolve and build may add env and volumeMounts to those; there are no
    others. Volumes are as those of serving.podTemplate."""
