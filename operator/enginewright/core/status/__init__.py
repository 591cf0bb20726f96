"""The shape of ``status``: the source of its schema in the CRD, and how the operator reads back what it wrote.

Reading never fails: a block that an edit has made invalid counts as absent, because everything in it can be found
out again.
"""

from __future__ import annotations

from enginewright.core.status.autoscaling import MAX_DECISIONS, AutoscalingStatus, ContestStatus, DecisionStatus
from enginewright.core.status.base import TIME, Block, StatusModel, read, read_all
from enginewright.core.status.build import BuildStatus
from enginewright.core.status.conditions import ConditionStatus, FailureStatus
from enginewright.core.status.engine import (
    CandidateStatus,
    EngineStatus,
    GroupsStatus,
    MemoryStatus,
    ProposedResourcesStatus,
    ServedStatus,
    TaskStatus,
    TokensStatus,
)
from enginewright.core.status.fleet import ClassStatus, HandoverStatus
from enginewright.core.status.placement import BatchingStatus, CostStatus, PlacementStatus, TriedProfileStatus
from enginewright.core.status.quality import BatchStatus, QualityStatus
from enginewright.core.status.rollout import (
    AnalysisStatus,
    PinStatus,
    RevisionStatus,
    RolledBackStatus,
    RolloutStatus,
    TargetStatus,
    ThroughputStatus,
)
from enginewright.core.status.server import LibraryStatus, RuntimeStatus, ServerStatus
from enginewright.core.status.source import CheckpointStatus, SourceStatus
from enginewright.core.status.whole import Status, SummaryStatus, read_status

__all__ = [
    "MAX_DECISIONS",
    "TIME",
    "AnalysisStatus",
    "AutoscalingStatus",
    "BatchStatus",
    "BatchingStatus",
    "Block",
    "BuildStatus",
    "CandidateStatus",
    "CheckpointStatus",
    "ClassStatus",
    "ConditionStatus",
    "ContestStatus",
    "CostStatus",
    "DecisionStatus",
    "EngineStatus",
    "FailureStatus",
    "GroupsStatus",
    "HandoverStatus",
    "LibraryStatus",
    "MemoryStatus",
    "PinStatus",
    "PlacementStatus",
    "ProposedResourcesStatus",
    "QualityStatus",
    "RevisionStatus",
    "RolledBackStatus",
    "RolloutStatus",
    "RuntimeStatus",
    "ServedStatus",
    "ServerStatus",
    "SourceStatus",
    "Status",
    "StatusModel",
    "SummaryStatus",
    "TargetStatus",
    "TaskStatus",
    "ThroughputStatus",
    "TokensStatus",
    "TriedProfileStatus",
    "read",
    "read_all",
    "read_status",
]
