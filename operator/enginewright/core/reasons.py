"""Condition types, their reasons and the events' actions: part of the API, documented in
docs/reference/conditions.md."""

from __future__ import annotations

from enum import StrEnum


class Condition(StrEnum):
    """Healthy is always ``True``. Page on ``Available``, open a ticket on ``Ready``."""

    READY = "Ready"
    AVAILABLE = "Available"
    SOURCE_RESOLVED = "SourceResolved"
    ENGINE_BUILT = "EngineBuilt"
    ACCURACY_VERIFIED = "AccuracyVerified"
    OBJECTIVE_MET = "ObjectiveMet"
    ROLLOUT_COMPLETE = "RolloutComplete"
    SCALING_ACTIVE = "ScalingActive"


class Reason(StrEnum):
    """Why a condition stands as it does. The builder's own reasons (``DigestMismatch``…) pass through unchanged."""

    # spec
    INVALID_SPEC = "InvalidSpec"
    NAME_TAKEN = "NameTaken"
    SUSPENDED = "Suspended"
    # operator
    API_REFUSED = "ApiRefused"
    OPERATOR_ERROR = "OperatorError"
    # source
    RESOLVING = "Resolving"
    RESOLVED = "Resolved"
    RESOLVE_RETRYING = "ResolveRetrying"
    # engine
    WAITING_FOR_SOURCE = "WaitingForSource"
    WAITING_FOR_QUEUE = "WaitingForQueue"
    BUILD_PENDING = "BuildPending"
    BUILDING = "Building"
    BUILT = "Built"
    CACHE_HIT = "CacheHit"
    SOURCE_SERVED = "SourceServed"
    BUILD_FAILED = "BuildFailed"
    BUILD_RETRYING = "BuildRetrying"
    BUILD_DEADLINE_EXCEEDED = "BuildDeadlineExceeded"
    STORE_MISSING = "StoreMissing"
    VOLUME_MISSING = "VolumeMissing"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    EVICTED = "Evicted"
    NODE_LOST = "NodeLost"
    UNSCHEDULABLE = "Unschedulable"
    POD_CANNOT_START = "PodCannotStart"
    ENGINE_LOST = "EngineLost"
    TARGET_CHANGED = "TargetChanged"
    # accuracy and objective
    WAITING_FOR_ENGINE = "WaitingForEngine"
    VERIFIED = "Verified"
    VERIFIED_ON_SYNTHETIC_DATA = "VerifiedOnSyntheticData"
    ACCURACY_NOT_REACHED = "AccuracyNotReached"
    MET = "Met"
    NOT_MET = "NotMet"
    NO_OBJECTIVE = "NoObjective"
    # rollout
    PROGRESSING = "Progressing"
    ANALYSING = "Analysing"
    WAITING_FOR_PROMOTION = "WaitingForPromotion"
    WAITING_FOR_CLASSES = "WaitingForClasses"
    DRAINING = "Draining"
    COMPLETE = "Complete"
    ROLLED_BACK = "RolledBack"
    PINNED = "Pinned"
    ROLLBACK_TARGET_UNKNOWN = "RollbackTargetUnknown"
    GATEWAY_NOT_INSTALLED = "GatewayNotInstalled"
    ENGINE_REFUSED = "EngineRefused"
    TENSORRT_VERSION_MISMATCH = "TensorRTVersionMismatch"
    DEVICE_MISMATCH = "DeviceMismatch"
    SMOKE_TEST_FAILED = "SmokeTestFailed"
    CRASHING = "Crashing"
    FAILED_INFERENCES = "FailedInferences"
    SLOWER = "Slower"
    OBJECTIVE_MISSED = "ObjectiveMissed"
    OUTPUTS_DIFFER = "OutputsDiffer"
    ANALYSIS_INCONCLUSIVE = "AnalysisInconclusive"
    WAITING_FOR_REPLICAS = "WaitingForReplicas"
    WAITING_FOR_SAMPLES = "WaitingForSamples"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    REPLICAS_NOT_READY = "ReplicasNotReady"
    NO_REPLICA = "NoReplica"
    SERVING = "Serving"
    SERVING_PREVIOUS = "ServingPrevious"
    # scaling
    MANUAL = "Manual"
    SCALING = "Scaling"
    STEADY = "Steady"
    HOLDING = "Holding"
    AT_LIMIT = "AtLimit"
    PRICE_UNKNOWN = "PriceUnknown"
    SCALED_TO_ZERO = "ScaledToZero"
    WAKING = "Waking"
    OBJECTIVE_OUT_OF_REACH = "ObjectiveOutOfReach"
    REPLICAS_CONTESTED = "ReplicasContested"
