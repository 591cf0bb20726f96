"""The typed spec of ``OptimisedModel``: the one source of the CRD's schema, of parsing and of validation."""

from enginewright.core.spec.engine import AccuracySpec, CheckpointSpec, EngineSpec, LatencySpec, ObjectiveSpec, TaskSpec
from enginewright.core.spec.interface import InterfaceSpec, NormaliseSpec, TensorSpec
from enginewright.core.spec.model import Spec
from enginewright.core.spec.parse import ParsedSpec, parse_spec
from enginewright.core.spec.placement import (
    DRASpec,
    GPUSpec,
    MIGSpec,
    PlacementClassSpec,
    PlacementSpec,
    TolerationSpec,
)
from enginewright.core.spec.pod_template import JobPodTemplateSpec, PodTemplateSpec
from enginewright.core.spec.resources import ResourcesSpec
from enginewright.core.spec.rollout import AutoscalingSpec, PrometheusSpec, RolloutSpec
from enginewright.core.spec.scaling_limits import ScalingPolicySpec, ScheduleSpec
from enginewright.core.spec.serving import BatchingSpec, InstancesSpec, ServingSpec, StoreSpec
from enginewright.core.spec.source import DataSpec, SourceSpec
from enginewright.core.spec.validate import validate, validate_name

__all__ = [
    "AccuracySpec", "AutoscalingSpec", "BatchingSpec", "CheckpointSpec", "DRASpec", "DataSpec", "EngineSpec", "GPUSpec",
    "InstancesSpec", "InterfaceSpec", "JobPodTemplateSpec", "LatencySpec", "MIGSpec", "NormaliseSpec", "ObjectiveSpec",
    "ParsedSpec", "PlacementClassSpec", "PlacementSpec", "PodTemplateSpec", "PrometheusSpec", "ResourcesSpec",
    "RolloutSpec", "ScalingPolicySpec", "ScheduleSpec", "ServingSpec", "SourceSpec", "Spec", "StoreSpec", "TaskSpec",
    "TensorSpec", "TolerationSpec", "parse_spec", "validate", "validate_name",
]
